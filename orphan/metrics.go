package orphan

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	removed, kept, held *prometheus.CounterVec
	condemned, last     *prometheus.GaugeVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"rule"})
	}
	return &metrics{
		removed: counter("orphan_removed_total", "Keys and members that went, by rule.", "rule"),
		kept: counter(
			"orphan_kept_total",
			"Candidates that a full pass kept, by rule and reason.",
			"rule",
			"reason",
		),
		held: counter("orphan_held_total",
			"Passes held because of the rule itself: reference_lost, source, mass_failure.", "rule", "reason"),
		condemned: gauge("orphan_condemned", "Candidates that the last pass found condemned, gone or waiting."),
		last:      gauge("orphan_last_success_timestamp_seconds", "When this process last finished a full pass."),
	}
}

// begin lets alerts see 0 before the first count.
func (m *metrics) begin(r *rule) {
	m.removed.WithLabelValues(r.Name)
	m.condemned.WithLabelValues(r.Name)
	for _, reason := range []string{
		alive, young, unreadable, unknown, foreign, large, waiting, noMark, capped, changed,
	} {
		m.kept.WithLabelValues(r.Name, reason)
	}
	for _, reason := range []string{heldLost, heldSource, heldMassFailure} {
		m.held.WithLabelValues(r.Name, reason)
	}
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.removed, m.kept, m.held, m.condemned, m.last} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) passed(r *Result) {
	switch r.Reason {
	case heldLost, heldSource, heldMassFailure:
		m.held.WithLabelValues(r.Rule, r.Reason).Inc()
	}
	if r.Outcome != "done" {
		return
	}
	m.condemned.WithLabelValues(r.Rule).Set(float64(r.Condemned))
	if !r.Full {
		return
	}
	m.last.WithLabelValues(r.Rule).SetToCurrentTime()
	for reason, n := range r.Kept {
		m.kept.WithLabelValues(r.Rule, reason).Add(float64(n))
	}
}
