package registry

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
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

// fail counts a failure. It logs the first of an outage, by whichever operation, and the first
// refusal, since somebody has to act on that. recovered ends the outage. Callers hold mu.
func (r *Registry) fail(op string, err error, n int) {
	if errors.Is(err, ErrReplaced) || errors.Is(err, context.Canceled) {
		return // reported elsewhere, or the end of Run
	}
	r.metrics.failures.WithLabelValues(op).Add(float64(n))
	r.failing[op] = err
	r.restoring.owed = r.restoring.owed || op != "listen"
	refusal := refused(err)
	if r.logged[refusal] != "" {
		return
	}
	r.logged[refusal] = op
	level, text := slog.LevelWarn, "registry operation failed; sockets are still served, retrying"
	if refusal {
		level, text = slog.LevelError, "Redis refuses this replica: "+
			"fix its user, password or rights (ACL), or the address of the primary; retrying"
	}
	r.log.Log(context.Background(), level, text, "op", op, "error", err)
}

func (r *Registry) recovered(op string) {
	if r.failing[op] != nil {
		delete(r.failing, op)
		maps.DeleteFunc(r.logged, func(_ bool, by string) bool { return by == op })
		r.log.Info("registry operation works again", "op", op)
	}
}

// passing are errors of a server that cannot serve anybody now; they are not about this client.
var passing = []string{
	"LOADING", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
	"ASK ", "MOVED ", "ERR max number of clients", "READONLY former primary",
}

// refused reports an answer that stays the same until somebody fixes something: a wrong password, a
// user without rights, a replica instead of the primary, clients that differ.
func refused(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return false
	}
	return !slices.ContainsFunc(passing, func(p string) bool {
		return strings.HasPrefix(answer.Error(), p)
	})
}
