package commands

import "github.com/prometheus/client_golang/prometheus"

// What is counted beside the statuses of outcomes.
const (
	countDuplicate = "duplicate" // its id had an outcome, or stood for another entry: gone without one
	countUnusable  = "unusable"  // no usable id: gone without an outcome
)

type metrics struct {
	commands *prometheus.CounterVec // by status
}

func newMetrics(reg prometheus.Registerer, outstanding func() float64) *metrics {
	m := &metrics{commands: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ingest_commands_total",
		Help: "Commands that this replica saw to, by status of the outcome, or duplicate or unusable (gone without one)."}, []string{"status"})}
	if reg != nil {
		reg.MustRegister(m.commands, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_commands_outstanding",
			Help: "Commands that this replica has read and that have no outcome yet."}, outstanding))
	}
	return m
}
