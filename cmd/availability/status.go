package main

import (
	"context"
	_ "embed"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is what GET /api/v1/status answers and the page shows.
type replicaStatus struct {
	service.Status
	Postgres databaseStatus `json:"postgres"`
	Mirror   mirrorStatus   `json:"mirror"`
	Counts   countsStatus   `json:"counts"`
}

// mirrorStatus is about what stands in Redis.
type mirrorStatus struct {
	// Whole: reads are answered from Redis. It is known at LookedAt.
	Whole    bool      `json:"whole"`
	LookedAt time.Time `json:"looked_at,omitzero"`
	// FeedAt is when the feed was last read and brought to Redis, FeedError why it was not.
	FeedAt    time.Time `json:"feed_at,omitzero"`
	FeedError string    `json:"feed_error,omitempty"`
	// Drift is what the last comparison on this replica found, by kind.
	Drift   map[string]int `json:"drift,omitempty"`
	DriftAt time.Time      `json:"drift_at,omitzero"`
	// RedisBreaker and PostgresBreaker are closed, half-open or open: then nobody is asked.
	RedisBreaker    string `json:"redis_breaker"`
	PostgresBreaker string `json:"postgres_breaker"`
	// OfflineHeld is why the leader sets nobody offline now.
	OfflineHeld string `json:"offline_held,omitempty"`
}

// lookedFor is for how long a look says whether the mirror is whole. There are four a second.
const lookedFor = 5 * time.Second

func (r *replica) mirrorStatus(reachable bool) mirrorStatus {
	h := r.mirror.Health()
	return mirrorStatus{
		Whole:    h.Whole && reachable && time.Since(h.LookedAt) < lookedFor,
		LookedAt: h.LookedAt, FeedAt: h.FeedAt, FeedError: h.FeedError, Drift: h.Drift, DriftAt: h.DriftAt,
		RedisBreaker: h.Redis, PostgresBreaker: h.Source, OfflineHeld: h.Offline,
	}
}

// status is what this replica knows, without asking anybody.
func (r *replica) status() replicaStatus {
	st := replicaStatus{
		Status: service.Status{
			Instance: r.registry.Instance(),
			Version:  service.Version(),
			Time:     time.Now(),
			Started:  r.began,
			HTTPAddr: r.http.Addr(),
			Admin:    r.settings.AdminToken != "",
			Registry: r.registry.Status(),
			Janitor:  r.janitor.Status(),
		},
		Postgres: r.database.status(),
		Counts:   r.counts.status(),
	}
	_, failing := st.Registry.Failing["heartbeat"]
	st.Redis = r.inspector.Status(!failing && !st.Registry.LastBeat.IsZero())
	st.Mirror = r.mirrorStatus(st.Redis.Reachable)
	st.NotReady = r.notReady(&st)
	st.Ready = st.NotReady == ""
	return st
}

// notReady says why this replica cannot answer; empty: it can. Reads need one of the two.
func (r *replica) notReady(st *replicaStatus) string {
	switch {
	case r.draining.Load():
		return "draining: this replica stops"
	case st.Registry.Refused != "":
		return "refused: Redis does not accept this replica: " + st.Registry.Refused
	case !st.Mirror.Whole && !st.Postgres.Answers && st.Postgres.LastAnswer.IsZero() && st.Registry.LastBeat.IsZero():
		return "starting: neither Redis nor PostgreSQL has answered yet"
	case !st.Mirror.Whole && !st.Postgres.Answers:
		return "nobody can answer: the mirror is not whole, and PostgreSQL does not answer"
	}
	return ""
}

// counts asks now and then how many mitras there are, for status and metrics.
type counts struct {
	mirror *availability.Mirror

	mu    sync.Mutex
	known countsStatus
}

// countsStatus is what was last found.
type countsStatus struct {
	// Online is how many are online, Available how many can take work. At is when that was asked, zero
	// if never, and Source who answered.
	Online    int                 `json:"online"`
	Available int                 `json:"available"`
	At        time.Time           `json:"at,omitzero"`
	Source    availability.Origin `json:"source,omitempty"`
	Error     string              `json:"error,omitempty"`
}

// countEvery is the time between two questions.
const countEvery = 5 * time.Second

func newCounts(m *availability.Mirror, metrics prometheus.Registerer) *counts {
	c := &counts{mirror: m}
	gauge := func(name, help string, value func(countsStatus) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(c.status())) })
	}
	metrics.MustRegister(
		gauge("availability_mitras_online", "Mitras who are online, as last asked.",
			func(s countsStatus) int { return s.Online }),
		gauge("availability_mitras_available", "Mitras who can take work, as last asked.",
			func(s countsStatus) int { return s.Available }),
	)
	return c
}

func (c *counts) status() countsStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// run asks until ctx ends.
func (c *counts) run(ctx context.Context) error {
	for {
		c.ask(ctx)
		if !wait.For(ctx, countEvery) {
			return nil
		}
	}
}

func (c *counts) ask(ctx context.Context) {
	online, err := c.mirror.CountOnline(ctx)
	snapshot, serr := c.mirror.Snapshot(ctx)
	if err == nil {
		err = serr
	}
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.known.Error = err.Error()
		return
	}
	c.known = countsStatus{
		Online: online.Value, Available: snapshot.Value.Count, At: time.Now(), Source: online.From,
	}
}
