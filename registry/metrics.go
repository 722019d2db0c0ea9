package registry

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// ownerSeriesAge and ownerSeriesMax bound the series of dead owners: instance ids are unique
	// per boot, so their number would only grow.
	ownerSeriesAge = time.Hour
	ownerSeriesMax = 1000
)

type metrics struct {
	failures *prometheus.CounterVec
	healed   prometheus.Counter
	evicted  *prometheus.CounterVec

	mu   sync.Mutex
	grew map[string]time.Time // when each series of evicted last grew
}

func newMetrics(cfg Config, claimed func() float64) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_failures_total",
			Help: "Registry operations that failed: " +
				"ids not registered at the first try (op register), failed calls otherwise.",
		}, []string{"op"}),
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_healed_total",
			Help: "Entries that this instance put back.",
		}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_janitor_evicted_total",
			Help: "Registry entries deleted, by dead owner; " +
				"series that have not grown for an hour are dropped.",
		}, []string{"instance_id"}),
		grew: map[string]time.Time{},
	}
	for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
		m.failures.WithLabelValues(op) // so that an alert sees 0 before the first failure
	}
	if cfg.Registerer == nil {
		return m, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: cfg.Namespace, Name: "registry_devices",
		Help: "Ids that this instance holds now: open sockets.",
	}, claimed)
	for _, c := range []prometheus.Collector{m.failures, m.healed, m.evicted, held} {
		if err := cfg.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// evictedFrom drops series that have not grown for an hour and, beyond the bound, the oldest.
func (m *metrics) evictedFrom(owner string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if n > 0 {
		// a label would panic otherwise; no sweep of ours condemns such an owner
		owner = strings.ToValidUTF8(owner, "?")
		m.evicted.WithLabelValues(owner).Add(float64(n))
		m.grew[owner] = now
	}
	forget := func(id string) {
		m.evicted.DeleteLabelValues(id)
		delete(m.grew, id)
	}
	for id, grew := range m.grew {
		if grew.Before(now.Add(-ownerSeriesAge)) {
			forget(id)
		}
	}
	if len(m.grew) > ownerSeriesMax {
		// Drop a tenth more than needed, so that a flood of owners does not sort each time.
		oldest := slices.SortedFunc(maps.Keys(m.grew), func(a, b string) int { return m.grew[a].Compare(m.grew[b]) })
		for _, id := range oldest[:len(oldest)-ownerSeriesMax*9/10] {
			forget(id)
		}
	}
}
