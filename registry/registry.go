package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Layout names every key; see guard.Layout.
type Layout = guard.Layout

// Registry is one replica's side of the registry. Create it with New, then Run it.
type Registry struct {
	// Set by New, end by Run; read-only afterwards.
	cfg     Config
	keys    Layout
	id      string
	random  string
	log     *slog.Logger
	metrics *metrics
	rights  *streak.Streak // missing ones, see beat.lua
	started chan struct{}
	scan    chan struct{} // one slot: compare the index with the claims
	end     context.CancelCauseFunc
	ran     atomic.Bool

	// Used only by the heartbeat.
	others *together.Member // partitions that beat together; nil: not yet

	mu      sync.Mutex // guards everything below, and every holding and claim
	changed *sync.Cond
	table   table
	failing map[string]error // by op: the last error, while it fails
	logged  map[bool]string  // by whether Redis refused: the op whose failure was logged
	healed  uint64
	claimed uint64

	// Of the heartbeat.
	boot     string // "": Redis has not been reached yet
	newest   int64  // see Newest
	formers  int    // answers of a former primary in a row
	lastBeat time.Time
	refused  string    // why the server has refused one since
	spoke    time.Time // when a beat was sent whose message should arrive here
	heard    time.Time // when the last one did
	deaf     bool      // it had not a moment ago
	holds    int       // calls of HoldHeartbeat
	draining bool

	// Of the reconciler.
	surprises surprises
	restoring restoring
	ready     bool // the former life has been handed back: index and claims are comparable
}

// New checks the configuration. It does not talk to Redis.
func New(cfg Config) (*Registry, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	r := &Registry{
		cfg: cfg, keys: cfg.Layout, log: cfg.Logger, id: cfg.Instance,
		random:  fmt.Sprintf("%010d", rand.Uint64N(1e10)),
		started: make(chan struct{}), scan: make(chan struct{}, 1),
		failing: map[string]error{}, logged: map[bool]string{},
		rights: streak.New(cfg.Logger,
			"scripts omit what this user may not do: fix its rights (ACL)", "this user has all rights again"),
	}
	r.table = newTable(r.id, cfg.HeartbeatInterval, cfg.HeartbeatTTL)
	r.changed = sync.NewCond(&r.mu)
	var err error
	r.metrics, err = newMetrics(cfg, func() float64 { return float64(r.Status().Held) })
	if err != nil {
		return nil, fmt.Errorf("registry: metrics: %w", err)
	}
	return r, nil
}

// Evicted counts entries that this process' janitor deleted, by dead owner.
func (r *Registry) Evicted(owner string, n int) { r.metrics.evictedFrom(owner, n) }

// Run beats and writes until ctx ends. Then it closes the sockets, evenly over the first half of
// the drain time, so that a fleet of clients does not connect again at one instant. It keeps
// beating until every claim is released and nothing holds the heartbeat, or the drain time is over,
// deregisters and returns nil. It returns ErrReplaced as soon as it finds that, and closes all
// sockets. If a callback of Config panics, so does Run: a replica without one of its parts would
// look alive and register nothing. It leaves no goroutine behind but calls of Socket. A
// second call returns an error at once.
func (r *Registry) Run(ctx context.Context) (err error) {
	if r.ran.Swap(true) {
		return errors.New("registry: Run was called before; make another Registry")
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.mu.Lock()
	r.end = end
	r.mu.Unlock()

	p := pool.New().WithContext(life)
	for _, part := range []func(context.Context) error{r.beats, r.write, r.talk, r.reconcile, r.listen} {
		p.Go(func(ctx context.Context) error {
			defer end(nil) // if it panics; otherwise life has ended
			return part(ctx)
		})
	}
	select {
	case <-ctx.Done():
		r.drained(life)
	case <-life.Done():
	}
	end(context.Canceled)
	r.mu.Lock()
	r.draining = true // also if it was replaced: no socket may be sent here
	r.mu.Unlock()
	defer func() { r.over(err) }() // also if a part of it panics
	_ = p.Wait()
	err = context.Cause(life) // the first: ErrReplaced if found before the end
	if errors.Is(err, context.Canceled) {
		err = r.goodbye(context.WithoutCancel(ctx))
	}
	if errors.Is(err, ErrReplaced) {
		r.log.Error("a newer process has this instance id; stopping this one")
	}
	return err
}

// over ends all claims: nothing lands any more.
func (r *Registry) over(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.close(cmp.Or(why, ErrStopping))
	closeOnce(r.started)
}

// HoldHeartbeat keeps Run beating after its context has ended, until release is called or the drain
// time is over. A leader's term needs it.
func (r *Registry) HoldHeartbeat() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.holds--
		r.changed.Broadcast()
	})
}

func (r *Registry) drained(life context.Context) {
	ctx, cancel := context.WithTimeout(life, r.cfg.Drain)
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel()
	closing.Go(func() { r.closeSockets(ctx) })
	err := r.await(ctx, func() bool {
		written := r.boot == "" || r.table.idle()
		return r.table.held() == 0 && r.holds == 0 && written
	})
	if err != nil && context.Cause(life) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log.Warn("drain timed out; the leader will sweep the rest",
			"devices", r.table.held(), "unwritten", r.table.pending())
	}
}

// closeSockets closes all sockets within half the drain time, and then those that still come.
func (r *Registry) closeSockets(ctx context.Context) {
	const steps = 50
	for left := steps; ; left = max(left-1, 1) {
		r.mu.Lock()
		var open []*Claim
		for _, h := range r.table.holdings {
			if h.claim != nil && h.claim.why == nil {
				open = append(open, h.claim)
			}
		}
		for _, c := range open[:(len(open)+left-1)/left] {
			c.end(ErrStopping)
		}
		r.mu.Unlock()
		if !wait.For(ctx, max(r.cfg.Drain/2/steps, time.Millisecond)) {
			return
		}
	}
}

func (r *Registry) await(ctx context.Context, cond func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.changed.Wait()
	}
	return nil
}

// Started is closed after the first attempt to reach Redis: the first heartbeat has landed and a
// former life is handed back, or Redis did not answer. Open the listeners then.
func (r *Registry) Started() <-chan struct{} { return r.started }

// Instance returns this replica's instance id.
func (r *Registry) Instance() string { return r.id }

// Layout returns the key names.
func (r *Registry) Layout() Layout { return r.keys }

// Timing returns how often this instance beats, and how long its heartbeat lasts.
func (r *Registry) Timing() guard.Timing {
	return guard.Timing{Interval: r.cfg.HeartbeatInterval, TTL: r.cfg.HeartbeatTTL}
}

// Status describes a replica's registry to operators.
type Status struct {
	Instance string `json:"instance"`
	Boot     string `json:"boot"` // boot token; empty until Redis was reached
	Held     int    `json:"held"`
	// ids, held or released, that Redis may disagree about
	Pending  int `json:"pending"`
	Disputed int `json:"disputed"` // held here, but their entries name others
	// Registered is the number of claims made since start.
	Registered uint64            `json:"registered"`
	Healed     uint64            `json:"healed"`    // entries put back since start
	LastBeat   time.Time         `json:"last_beat"` // local time; zero: none has landed yet
	Heard      bool              `json:"heard"`     // a message of its own has arrived, so others' can
	Draining   bool              `json:"draining"`  // Run's context, or Run, has ended
	Failing    map[string]string `json:"failing"`   // op -> last error, while it fails
	Refused    string            `json:"refused"`   // why Redis has refused a beat since then
	Interval   string            `json:"interval"`
	TTL        string            `json:"ttl"`
	IndexKept  bool              `json:"index_kept"` // REGISTRY_REVERSE_INDEX
}

// Status returns the current state.
func (r *Registry) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		Instance: r.id, Boot: r.boot, LastBeat: r.lastBeat, Draining: r.draining,
		Held: r.table.held(), Pending: r.table.pending(), Disputed: r.table.count[foreign],
		Registered: r.claimed, Healed: r.healed, Failing: map[string]string{},
		Interval: r.cfg.HeartbeatInterval.String(), TTL: r.cfg.HeartbeatTTL.String(),
		IndexKept: !r.cfg.NoReverseIndex, Refused: r.refused, Heard: !r.heard.IsZero(),
	}
	for op, err := range r.failing {
		s.Failing[op] = err.Error()
	}
	return s
}
