package registry

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// ownerSeriesMost bounds the series of dead owners: instance ids are unique per boot, so their
// number would only grow.
const ownerSeriesMost = 1000

type metrics struct {
	failures  *prometheus.CounterVec
	healed    prometheus.Counter
	contested prometheus.Counter
	evicted   *prometheus.CounterVec

	mu     sync.Mutex
	owners []string // with a series of evicted, in the order of their first
}

func newMetrics(cfg Config, claimed func() float64) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_failures_total",
			Help: "Registry operations that failed.",
		}, []string{"op"}),
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_healed_total",
			Help: "Entries that this instance put back.",
		}),
		contested: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_contested_total",
			Help: "Sockets that a newer one of their id ended within a minute: clients may share an id.",
		}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: cfg.Namespace, Name: "registry_janitor_evicted_total",
			Help: "Registry entries deleted, by dead owner; " +
				"beyond 1,000 owners the oldest series are dropped.",
		}, []string{"instance_id"}),
	}
	for _, op := range []string{"register", "release", "heartbeat", "heal", "check", "compare",
		"lookup", "listen"} {
		m.failures.WithLabelValues(op) // so that an alert sees 0 before the first failure
	}
	if cfg.Registerer == nil {
		return m, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: cfg.Namespace, Name: "registry_held",
		Help: "Ids that this instance holds now: open sockets.",
	}, claimed)
	for _, c := range []prometheus.Collector{m.failures, m.healed, m.contested, m.evicted, held} {
		if err := cfg.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) evictedFrom(owner string, n int) {
	if n == 0 {
		return
	}
	// a label would panic otherwise; no sweep of ours condemns such an owner
	owner = strings.ToValidUTF8(owner, "?")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evicted.WithLabelValues(owner).Add(float64(n))
	if slices.Contains(m.owners, owner) {
		return
	}
	m.owners = append(m.owners, owner)
	if len(m.owners) > ownerSeriesMost {
		m.evicted.DeleteLabelValues(m.owners[0])
		m.owners = slices.Delete(m.owners, 0, 1)
	}
}
