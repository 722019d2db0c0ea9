package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// Layout names every key; see guard.Layout.
type Layout = guard.Layout

// Registry is one replica's side of the registry. Create it with New, then Run it.
type Registry struct {
	// Set by New, and end by Run; read-only after.
	cfg     Config
	keys    Layout
	id      string
	random  string // of the boot token
	log     *slog.Logger
	metrics *metrics
	longID  sync.Once // logs the first id that was too long
	// what Redis lets this user do
	keeping, telling *streak.Streak
	started          chan struct{}
	ended            chan struct{} // closed when Run ends: after that nothing lands any more
	scan             chan struct{} // one slot, to the reconciler: the index and the claims differ
	end              context.CancelCauseFunc

	// Touched by the heartbeat only.
	differ int              // times that Client was not where Control is
	others *together.Member // with whom it beats; nil: not yet

	mu      sync.Mutex // guards all below, and every device and claim
	changed *sync.Cond // signalled after each batch
	table   table
	failing map[string]error // by op: the last error, while it fails
	// toldRefusal has the ops that were refused since they began to fail.
	toldRefusal map[string]bool
	healed      uint64
	// Taken over from dead instances, and not yet logged; when that was last logged.
	outlived     int
	toldOutlived time.Time

	// The heartbeat's.
	boot     string    // the boot token; "": Redis has not been reached yet
	lastBeat time.Time // that landed
	refused  string    // why the server refused one since
	moving   bool      // a write was refused since, because its slot is on the move
	holds    int       // of HoldHeartbeat
	draining bool

	// The reconciler's.
	surprises surprises
	ready     bool // the former life has been handed back: index and claims may be compared
	scanFails bool // the last scan failed
	// checkFails: no more of healing fails than the comparison of single entries.
	checkFails bool
}

// New checks the configuration and returns a Registry that does nothing yet. It does not speak to
// Redis.
func New(cfg Config) (*Registry, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	r := &Registry{
		cfg: cfg, keys: cfg.Layout, log: cfg.Logger, id: cfg.Instance,
		random:  fmt.Sprintf("%010d", rand.Uint64N(1e10)),
		started: make(chan struct{}), ended: make(chan struct{}), scan: make(chan struct{}, 1),
		failing: map[string]error{}, toldRefusal: map[string]bool{},
		keeping: streak.New(cfg.Logger,
			"Redis refuses to keep the roster or the reverse index: mend this user's rights (ACL)",
			"Redis lets this user keep the roster and the reverse index"),
		telling: streak.New(cfg.Logger,
			"Redis refuses to tell other owners which devices they lost: mend this user's rights (ACL)",
			"Redis lets this user tell other owners which devices they lost"),
	}
	r.table = newTable(r.id, cfg.HeartbeatInterval, cfg.HeartbeatTTL)
	r.changed = sync.NewCond(&r.mu)
	var err error
	r.metrics, err = newMetrics(cfg, func() float64 { return float64(r.Status().Devices) })
	if err != nil {
		return nil, fmt.Errorf("registry: metrics: %w", err)
	}
	return r, nil
}

// Run beats and writes until ctx ends. Then it goes on beating until every claim is released and
// nothing holds the heartbeat, or the drain time has passed; it joins what is under way, says
// goodbye and returns nil. It returns ErrSuperseded as soon as a newer process with the same
// instance id is found, and ErrClientsDiffer if the two clients are not at the same place. It
// leaves no goroutine behind and is called once.
func (r *Registry) Run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.mu.Lock()
	r.end = end
	r.mu.Unlock()

	p := pool.New().WithContext(life)
	p.Go(r.beats)
	p.Go(r.write)
	p.Go(r.talk)
	p.Go(r.reconcile)
	if r.cfg.OnDisplaced != nil {
		p.Go(r.listen)
	}

	select {
	case <-ctx.Done():
		r.drained(life)
	case <-life.Done():
	}
	end(context.Canceled)
	_ = p.Wait() // they return nil
	closeOnce(r.started)
	close(r.ended)
	err := context.Cause(life) // the first: ErrSuperseded if that was found before the end
	if errors.Is(err, context.Canceled) {
		err = r.goodbye(context.WithoutCancel(ctx))
	}
	r.mu.Lock()
	r.table.close()
	r.mu.Unlock()
	if errors.Is(err, ErrSuperseded) {
		r.log.Error("a newer process has this instance id, this one ends")
	}
	return err
}

// HoldHeartbeat keeps Run beating, once its context has ended, until release is called or the drain
// time has passed. It is for work that rests on this instance's heartbeat: a leader's term takes
// its absence for a hold.
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

// drained waits until nothing holds the heartbeat and every claim is released and written, or the
// drain time has passed.
func (r *Registry) drained(life context.Context) {
	ctx, cancel := context.WithTimeout(life, r.cfg.Drain)
	defer cancel()
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	err := r.await(ctx, func() bool {
		written := r.boot == "" || r.table.idle()
		return r.table.held() == 0 && r.holds == 0 && written
	})
	if err != nil && context.Cause(life) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log.Warn("drain time has passed, what is left will be swept by the leader",
			"devices", r.table.held(), "unwritten", r.table.pending())
	}
}

// await waits until cond, called with mu held, is true.
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

// Started is closed when the first attempt to reach Redis is over: the first heartbeat has landed
// and the former life of a fixed instance id is handed back, or Redis did not answer. Open the
// listeners then.
func (r *Registry) Started() <-chan struct{} { return r.started }

// Instance returns this replica's instance id.
func (r *Registry) Instance() string { return r.id }

// Layout returns the names of the keys.
func (r *Registry) Layout() Layout { return r.keys }

// Timing is how often this instance beats, and how long its heartbeat lasts.
func (r *Registry) Timing() guard.Timing {
	return guard.Timing{Interval: r.cfg.HeartbeatInterval, TTL: r.cfg.HeartbeatTTL}
}

// Status is what an operator wants to know of a replica's registry.
type Status struct {
	Instance string `json:"instance"`
	Boot     string `json:"boot"`    // boot token; empty until Redis was reached
	Devices  int    `json:"devices"` // held now
	// of those and of the released: what Redis may not agree about
	Pending   int               `json:"pending"`
	Foreign   int               `json:"foreign"`    // held here, but the entry names another instance
	Healed    uint64            `json:"healed"`     // entries put back since start
	LastBeat  time.Time         `json:"last_beat"`  // local time; zero: none has landed yet
	Draining  bool              `json:"draining"`   // Run's context has ended
	Failing   map[string]string `json:"failing"`    // op -> last error, while it fails
	Refused   string            `json:"refused"`    // why Redis refused a heartbeat since one landed
	Interval  string            `json:"interval"`   // between heartbeats
	TTL       string            `json:"ttl"`        // of a heartbeat
	IndexKept bool              `json:"index_kept"` // REGISTRY_REVERSE_INDEX
}

// Status returns the present state.
func (r *Registry) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		Instance: r.id, Boot: r.boot, LastBeat: r.lastBeat, Draining: r.draining,
		Devices: r.table.held(), Pending: r.table.pending(), Foreign: r.table.disputed(),
		Healed: r.healed, Failing: map[string]string{},
		Interval: r.cfg.HeartbeatInterval.String(), TTL: r.cfg.HeartbeatTTL.String(),
		IndexKept: !r.cfg.NoReverseIndex, Refused: r.refused,
	}
	for op, err := range r.failing {
		s.Failing[op] = err.Error()
	}
	return s
}
