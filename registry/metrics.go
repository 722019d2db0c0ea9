package registry

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	failures *prometheus.CounterVec
	healed   prometheus.Counter
}

// newMetrics registers with reg, or nowhere if it is nil. devices is asked at each scrape.
func newMetrics(reg prometheus.Registerer, devices func() float64) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "teltonika_registry_failures_total",
			Help: "Registry operations that failed: devices not registered at the first try (op register), failed calls otherwise.",
		}, []string{"op"}),
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "teltonika_registry_healed_total",
			Help: "Entries that this instance put back.",
		}),
	}
	for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
		m.failures.WithLabelValues(op) // so that an alert sees 0 before the first failure
	}
	if reg == nil {
		return m, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "teltonika_registry_devices",
		Help: "Devices that this instance holds now.",
	}, devices)
	for _, c := range []prometheus.Collector{m.failures, m.healed, held} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
