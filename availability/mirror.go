package availability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	defaultTick              = 250 * time.Millisecond
	defaultReconcileInterval = 5 * time.Minute
	defaultOfflineInterval   = 30 * time.Second
	defaultHeartbeatInterval = time.Minute
	defaultFallbacks         = 8

	// bounds each call to Redis that somebody waits for; reads then fall back
	callTimeout = time.Second
)

// Config configures a Mirror. Zero numbers and durations mean the default.
type Config struct {
	Source Source

	// Client serves reads, heartbeats and states. It must not retry: see lease.CheckClient. Neither
	// client is closed here.
	Client redis.UniversalClient

	// Control subscribes to `config:invalidate`, with options from lease.Options.
	Control redis.UniversalClient

	// Layout must be the registry's and the janitor's. On a Cluster it needs a hash tag: scripts build
	// keys, so all are in one slot.
	Layout guard.Layout

	// Tick between two reads of the feed. A change that no writer delivered takes that long, plus the
	// source's longest transaction. Default 250 ms.
	Tick time.Duration

	// ReconcileInterval between two comparisons of all states. Default 5 m.
	ReconcileInterval time.Duration

	// OfflineInterval between two searches for silent mitras. Default 30 s.
	OfflineInterval time.Duration

	// HeartbeatInterval is how old the source's heartbeats may get. Default 60 s.
	HeartbeatInterval time.Duration

	// Fallbacks limits concurrent reads from the source while Redis cannot answer. Default 8.
	Fallbacks int

	Logger     *slog.Logger // default slog.Default()
	Registerer prometheus.Registerer
}

// A Mirror copies the source's states to Redis and answers from there. It is safe for concurrent
// use.
type Mirror struct {
	c       Config
	source  Source
	rdb     redis.UniversalClient
	keys    keys
	log     *slog.Logger
	metrics *metrics

	patience time.Duration // callTimeout, except in tests on a slow machine

	applying, feeding, settling, sensible *streak.Streak

	redis, truth breaker // calls to Redis; reads from the source
	fallbacks    *semaphore.Weighted
	computing    singleflight.Group

	ready       chan struct{} // closed once this process has seen the mirror whole
	reconnected chan struct{} // nudges

	settings     atomic.Pointer[Settings]
	settingsRead atomic.Uint64

	clocks  clocks
	repairs chan struct{} // nudges: the source has another life

	mu         sync.Mutex // for the fields below
	health     Health
	upTo       time.Time // Redis has what the source had committed by then; zero: nobody follows it
	uncompared bool      // Redis may be ahead of the source: ignore upTo
	brought    time.Time // when heartbeats were last copied to the source; zero: unknown
	kept       time.Time // when Redis last accepted a heartbeat from this process, or its start
	required   time.Time // when this process saw that heartbeats became required; zero: long ago
	free       time.Time // the same, at the latest, as the leader noted
	settingsOf uint64    // the read that settings came from

	settingsFailed   error // of the last first read; nil: settings are known, or unasked
	settingsFailedAt time.Time

	snapshot lastSnapshot
}

// New returns a Mirror, or all that is wrong with the configuration. It makes no calls.
func New(c Config) (*Mirror, error) {
	c.Tick = cmp.Or(c.Tick, defaultTick)
	c.ReconcileInterval = cmp.Or(c.ReconcileInterval, defaultReconcileInterval)
	c.OfflineInterval = cmp.Or(c.OfflineInterval, defaultOfflineInterval)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, defaultHeartbeatInterval)
	c.Fallbacks = cmp.Or(c.Fallbacks, defaultFallbacks)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if err := c.check(); err != nil {
		return nil, err
	}
	m := &Mirror{
		c:        c,
		source:   c.Source,
		rdb:      c.Client,
		keys:     keys{c.Layout},
		log:      c.Logger,
		metrics:  newMetrics(),
		patience: callTimeout,
		applying: streak.New(c.Logger, "states do not reach Redis: readers see old ones, the feed tries again",
			"states reach Redis again"),
		feeding: streak.New(c.Logger, "the mirror is not kept: readers see old states, or fall back to the source",
			"the mirror is kept again"),
		settling: streak.New(
			c.Logger,
			"settings cannot be read: the last known ones apply",
			"settings are read again",
		),
		sensible:    newSensible(c.Logger),
		redis:       newBreaker("redis"),
		truth:       newBreaker("source"),
		fallbacks:   semaphore.NewWeighted(int64(c.Fallbacks)),
		ready:       make(chan struct{}),
		reconnected: make(chan struct{}, 1),
		repairs:     make(chan struct{}, 1),
		kept:        time.Now(),
		clocks:      clocks{source: c.Source.Clock()},
	}
	if err := m.metrics.register(c.Registerer, m.Health); err != nil {
		return nil, fmt.Errorf("availability: metrics: %w", err)
	}
	return m, nil
}

func (c Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("availability: "+format, args...))
		}
	}
	wrong(c.Source == nil, "Source is missing")
	if err := lease.CheckClient(c.Client, 0); err != nil {
		errs = append(errs, fmt.Errorf("availability: unfit Client: %w", err))
	}
	if err := lease.CheckClient(c.Control, 0); err != nil {
		errs = append(errs, fmt.Errorf("availability: unfit Control: %w", err))
	}
	wrong(!c.Layout.ValidPrefix(), "Layout.Prefix is %q, must be %s", c.Layout.Prefix, guard.PrefixRule)
	_, cluster := c.Client.(*redis.ClusterClient)
	wrong(
		cluster && !c.Layout.OneSlot(),
		"Layout.Prefix %q has no hash tag such as {name}:, which a Cluster needs",
		c.Layout.Prefix,
	)
	wrong(c.Tick < 0, "Tick is %s, must be positive", c.Tick)
	wrong(c.ReconcileInterval < 0, "ReconcileInterval is %s, must be positive", c.ReconcileInterval)
	wrong(c.OfflineInterval < 0, "OfflineInterval is %s, must be positive", c.OfflineInterval)
	wrong(c.HeartbeatInterval < 0, "HeartbeatInterval is %s, must be positive", c.HeartbeatInterval)
	wrong(c.Fallbacks < 0, "Fallbacks is %d, must be positive", c.Fallbacks)
	return errors.Join(errs...)
}

// Run keeps the mirror and the settings until ctx ends, on every replica. It returns nil, and
// leaves no goroutine.
func (m *Mirror) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work conc.WaitGroup
	for _, part := range []func(context.Context){m.listen, m.follow, m.keepSettings, m.keepRepaired} {
		work.Go(func() {
			defer cancel() // if it panics
			part(ctx)
		})
	}
	work.Wait()
	return nil
}

// Ready is closed once this process has seen the mirror whole and seeded since it began. Until then
// reads fall back.
func (m *Mirror) Ready() <-chan struct{} { return m.ready }

// Health is a Mirror's state, for operators.
type Health struct {
	Whole     bool           `json:"whole"`                // at the last look
	LookedAt  time.Time      `json:"looked_at,omitzero"`   // the last look; zero: Redis has not answered yet
	FeedAt    time.Time      `json:"feed_at,omitzero"`     // when the feed was last read and applied
	Behind    time.Duration  `json:"-"`                    // see availability_feed_behind_seconds
	FeedError string         `json:"feed_error,omitempty"` // of the last look
	Drift     map[string]int `json:"drift,omitempty"`      // of the last reconciliation, by kind
	DriftAt   time.Time      `json:"drift_at,omitzero"`    // zero: none by this process
	Unseen    []string       `json:"unseen,omitempty"`     // see Source.Unseen; as of then
	Redis     string         `json:"redis_breaker"`        // circuit breaker: closed, half-open, open
	Source    string         `json:"postgres_breaker"`     // the same
	// SettingsError is why settings cannot be read, or which make no sense; "": they are current.
	SettingsError string `json:"settings_error,omitempty"`
	// Offline is why nobody goes offline for silence; "": they do, or this replica does not lead.
	Offline string `json:"offline_held,omitempty"`
}

// Health returns the mirror's state.
func (m *Mirror) Health() Health {
	behind := m.behind()
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.health
	h.Behind = behind
	h.Redis, h.Source = m.redis.State().String(), m.truth.State().String()
	return h
}

func (m *Mirror) note(change func(h *Health)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.health)
}
