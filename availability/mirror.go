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

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	defaultTick              = 250 * time.Millisecond
	defaultReconcileInterval = 5 * time.Minute
	defaultOfflineInterval   = 30 * time.Second
	defaultHeartbeatInterval = time.Minute
	defaultFallbacks         = 8

	// callTimeout bounds each call to Redis that somebody waits for: reads fall back after it.
	callTimeout = time.Second
)

// Config configures a Mirror. Of a number or duration zero means the default.
type Config struct {
	// Source is the durable truth.
	Source Source

	// Client carries reads, heartbeats and states. It must not retry: see lease.CheckClient. Not
	// closed here.
	Client redis.UniversalClient

	// Control is for the subscription to `config:invalidate`, with options as lease.Options makes
	// them. Not closed here.
	Control redis.UniversalClient

	// Layout has the prefix of all keys, and of the channel. It is the registry's and the janitor's.
	// On a Redis Cluster it must have a hash tag: scripts build keys, so all have to be in one slot.
	Layout guard.Layout

	// Tick is the pause between two looks at the source's feed. A change that no writer brought here
	// takes so long, and the length of the longest transaction in the source. Default 250 ms.
	Tick time.Duration

	// ReconcileInterval from one comparison of all states to the next. Default 5 m.
	ReconcileInterval time.Duration

	// OfflineInterval from one look for silent mitras to the next. Default 30 s.
	OfflineInterval time.Duration

	// HeartbeatInterval is how old the source's heartbeats get. Default 60 s.
	HeartbeatInterval time.Duration

	// Fallbacks is how many reads may ask the source at once while Redis cannot answer. Default 8.
	Fallbacks int

	Logger     *slog.Logger          // default slog.Default()
	Registerer prometheus.Registerer // nil: none are registered
}

// A Mirror keeps in Redis what the source knows, and answers from there. Make one with New, and Run
// it. Safe for concurrent use.
type Mirror struct {
	c       Config
	source  Source
	rdb     redis.UniversalClient
	keys    keys
	log     *slog.Logger
	metrics *metrics

	patience time.Duration // callTimeout, but for tests on a slow machine
	janitors guard.Layout  // the janitor's: c.Layout, but for tests with two leaders at once

	applying, feeding, settling, sensible *streak.Streak // what may fail for a while

	redis, truth breaker // of calls to Redis, and of reads from the source
	fallbacks    *semaphore.Weighted
	computing    singleflight.Group

	ready       chan struct{} // closed when this process first knew the mirror to be whole
	reconnected chan struct{} // nudges: a connection to Redis ended, and there is another

	settings     atomic.Pointer[Settings]
	settingsRead atomic.Uint64 // reads of settings that have begun

	clocks  clocks
	repairs chan struct{} // nudges: the source has another life

	mu         sync.Mutex // guards what follows
	health     Health
	upTo       time.Time // Redis has what the source had committed by then; zero: nobody follows it
	uncompared bool      // Redis may be ahead of the source: upTo means nothing
	brought    time.Time // when heartbeats were last brought to the source; zero: it is not known
	kept       time.Time // when Redis last kept a heartbeat for this process, or this began
	settingsOf uint64    // which of settingsRead settings is of

	settingsFailed   error // of who asked for the first settings; nil: they are known, or nobody has asked
	settingsFailedAt time.Time

	snapshot lastSnapshot // the last that this process knew
}

// New returns a Mirror, or all that is wrong with the configuration. It talks to nobody.
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
		janitors: c.Layout,
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
	}
	if err := m.metrics.register(c.Registerer, m.Health); err != nil {
		return nil, fmt.Errorf("availability: metrics: %w", err)
	}
	return m, nil
}

// check names all that is wrong, in words.
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

// Run seeds the mirror, reads the feed, and hears of changed settings, until ctx ends. Then it
// returns nil, and leaves no goroutine behind. Every replica runs one.
func (m *Mirror) Run(ctx context.Context) error {
	var work conc.WaitGroup
	work.Go(func() { m.listen(ctx) })
	work.Go(func() { m.follow(ctx) })
	work.Go(func() { m.keepSettings(ctx) })
	work.Go(func() { m.keepRepaired(ctx) })
	work.Wait()
	return nil
}

// Ready is closed when this process first knew the mirror to be whole, and seeded since it began. A
// program waits for it before it opens its listener, for as long as it likes: until then reads fall
// back to the source.
func (m *Mirror) Ready() <-chan struct{} { return m.ready }

// Health is what an operator wants to know of a Mirror.
type Health struct {
	Whole     bool           // at the last look
	LookedAt  time.Time      // when that was; zero: Redis has not answered yet
	FeedAt    time.Time      // when the feed was last read and applied
	Behind    time.Duration  // for how long Redis may have missed what the source committed; 0: it has it
	FeedError string         // "": the last look went well
	Drift     map[string]int // what the last reconciliation found, by kind
	DriftAt   time.Time      // when that was; zero: this process has made none
	Unseen    []string       // how the source's tables may change without their states, as of that comparison
	Redis     string         // of the circuit breaker before Redis: closed, half-open, open
	Source    string         // of the one before the source
	// SettingsError is why settings cannot be read, or which make no sense; "": they are those of now.
	SettingsError string
	// why nobody goes offline for silence now; "": they do, or this replica does not lead
	Offline string
}

// Health returns how the mirror is.
func (m *Mirror) Health() Health {
	behind := m.behind()
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.health
	h.Behind = behind
	h.Redis, h.Source = m.redis.State().String(), m.truth.State().String()
	return h
}

// note changes what Health says.
func (m *Mirror) note(change func(h *Health)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.health)
}

// nudge wakes whoever waits on a channel with one slot.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
