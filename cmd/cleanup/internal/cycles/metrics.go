package cycles

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/orphan"
)

type metrics struct {
	duration prometheus.Histogram
	cycles   prometheus.Counter
	ended    *prometheus.GaugeVec
}

func newMetrics(c Config) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cleanup_cycle_duration_seconds",
			Help:    "For how long passes of a cycle were under way, rest included.",
			Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}, // the alert's threshold is 10
		}),
		cycles: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleanup_cycles_total",
			Help: "Cycles: each rule has had one full pass, and at least one of them was not held.",
		}),
		// A plain gauge would show 1970 until the first cycle.
		ended: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleanup_last_cycle_timestamp_seconds", Help: "When this process last finished a cycle.",
		}, nil),
	}
	if c.Registerer == nil {
		return m, nil
	}
	all := []prometheus.Collector{m.duration, m.cycles, m.ended}
	for _, name := range categories(c.Rules) {
		counter := func(metric, help string, count func(orphan.Stats) uint64) {
			all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: metric, Help: help, ConstLabels: prometheus.Labels{"category": name},
			}, func() float64 { return float64(count(c.Removed())) }))
		}
		counter("cleanup_keys_removed_total", "Keys and members removed, with related ones, by category.",
			func(s orphan.Stats) uint64 { return s.CategoryKeys[name] })
		counter("cleanup_orphans_removed_total",
			"Orphans removed, by category: each once, however many keys went with it.",
			func(s orphan.Stats) uint64 { return s.Categories[name] })
	}
	for _, one := range all {
		if err := c.Registerer.Register(one); err != nil {
			return nil, fmt.Errorf("cleanup: metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) cycle(now time.Time, took time.Duration) {
	m.duration.Observe(took.Seconds())
	m.cycles.Inc()
	m.ended.WithLabelValues().Set(float64(now.UnixMilli()) / 1000)
}
