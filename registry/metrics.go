package registry

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	failures *prometheus.CounterVec
	healed   prometheus.Counter
}

// newMetrics registers with cfg.Registerer, or nowhere if it is nil. devices is asked at each
// scrape.
func newMetrics(cfg Config, devices func() float64) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_failures_total",
			Help: "Registry operations that failed: " +
				"devices not registered at the first try (op register), failed calls otherwise.",
		}, []string{"op"}),
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_healed_total",
			Help: "Entries that this instance put back.",
		}),
	}
	for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
		m.failures.WithLabelValues(op) // so that an alert sees 0 before the first failure
	}
	if cfg.Registerer == nil {
		return m, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: cfg.Namespace, Name: "registry_devices",
		Help: "Devices that this instance holds now.",
	}, devices)
	for _, c := range []prometheus.Collector{m.failures, m.healed, held} {
		if err := cfg.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
