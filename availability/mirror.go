package availability

import (
	"cmp"
	"context"
	"embed"
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

type metrics struct {
	drift, reads, heartbeats, badKeys *prometheus.CounterVec

	applyFailed, fed, seeds, computed, offline, mirrored prometheus.Counter
}

func newMetrics() *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		drift: vec(
			"availability_drift_total",
			"States that a comparison found to differ, and healed.",
			"kind",
		),
		reads: vec(
			"availability_reads_total",
			"Reads by operation, and where the answer came from; error: nobody knew.",
			"op",
			"source",
		),
		heartbeats: vec("availability_heartbeats_total", "Heartbeats by what became of them.", "result"),
		badKeys: vec(
			"availability_bad_keys_total",
			"Keys of the mirror that held something else.",
			"key",
			"outcome",
		),
		applyFailed: counter(
			"availability_apply_failed_total",
			"Writes that did not reach Redis at once; the feed brings them.",
		),
		fed: counter(
			"availability_fed_total",
			"States that the feed brought to Redis, because no writer had.",
		),
		seeds:    counter("availability_seeds_total", "Complete seedings by this process."),
		computed: counter("availability_snapshots_total", "Snapshots that this process computed."),
		offline: counter(
			"availability_auto_offline_total",
			"Mitras that this process set offline for their silence.",
		),
		mirrored: counter(
			"availability_heartbeats_mirrored_total",
			"Heartbeats that this process brought to the source.",
		),
	}
	for _, kind := range []string{Behind, Differs, Ahead, Unknown, Base} {
		m.drift.WithLabelValues(kind) // lets an alert see 0 before the first
	}
	for _, key := range append([]string{capacityKeys, heartbeatKeys}, sharedKeys...) {
		m.badKeys.WithLabelValues(key, rebuilt)
		m.badKeys.WithLabelValues(key, kept)
	}
	for _, beat := range []Beat{BeatKept, BeatUnseeded, BeatNotOnline, BeatDeactivated, "error"} {
		m.heartbeats.WithLabelValues(string(beat))
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer, health func() Health) error {
	if reg == nil {
		return nil
	}
	whole := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "availability_mirror_whole",
		Help: "1 while the mirror was whole at the last look; 0: reads fall back.",
	}, func() float64 { return float64(bit(health().Whole)) })
	behind := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "availability_feed_behind_seconds",
		Help: "For how long Redis may have missed what Postgres committed.",
	}, func() float64 { return health().Behind.Seconds() })
	for _, c := range []prometheus.Collector{
		m.drift, m.reads, m.heartbeats, m.badKeys, m.applyFailed, m.fed, m.seeds, m.computed, m.offline,
		m.mirrored, whole, behind,
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// keys names the mirror's keys. Other services read them, so only the layout's prefix may vary.
// keys.lua builds those of one mitra.
type keys struct{ guard.Layout }

func (k keys) online() string      { return k.Prefix + "mitras:online" }
func (k keys) deactivated() string { return k.Prefix + "mitras:deactivated" }
func (k keys) version() string     { return k.Prefix + "mitras:version" }
func (k keys) seeded() string      { return k.Prefix + "mitras:seeded" }
func (k keys) fed() string         { return k.Prefix + "mitras:fed" }

func (k keys) capacity(id string) string  { return k.Prefix + "mitra:capacity:" + id }
func (k keys) heartbeat(id string) string { return k.Prefix + "mitra:heartbeat:" + id }

func (k keys) snapshot() string  { return k.Prefix + "availability:snapshot" }
func (k keys) computing() string { return k.Prefix + "availability:snapshot:computing" }
func (k keys) noted() string     { return k.Prefix + "availability:offline" }

// invalidate is the channel that announces changed settings by name.
func (k keys) invalidate() string { return k.Prefix + "config:invalidate" }

func (k keys) all(more ...string) []string {
	return append([]string{k.online(), k.deactivated(), k.version(), k.seeded()}, more...)
}

//go:embed *.lua
var files embed.FS

// bodyKeys is a guarded body's first key; see guard.NewBody.
const bodyKeys = 6

// lua joins files after keys.lua. The four keys begin at KEYS[from].
func lua(from int, names ...string) string {
	text := fmt.Sprintf("local from = %d\n", from) + file("keys")
	for _, name := range names {
		text += file(name)
	}
	return text
}

func file(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	applyScript     = redis.NewScript(lua(1, "iso", "heard", "apply"))
	beatsScript     = redis.NewScript(lua(1, "iso", "heard", "witness", "beats"))
	scanScript      = redis.NewScript(file("scan"))
	findPageScript  = redis.NewScript(lua(1, "iso", "heard", "witness", "findpage"))
	fitScript       = redis.NewScript(lua(1, "iso", "fit"))
	heartbeatScript = redis.NewScript(file("iso") + file("heartbeat"))
	removeScript    = redis.NewScript(lua(1, "remove"))
	feedScript      = redis.NewScript(file("iso") + file("feed"))
	statusScript    = redis.NewScript(lua(1, "iso", "heard", "witness", "status"))

	condemnBody = guard.NewBody(lua(bodyKeys, "iso", "heard", "condemn"))
)
