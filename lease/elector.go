package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
)

const (
	defaultTTL = 15 * time.Second
	// Below, scheduling and garbage collection alone cost the lease.
	minTTL = 100 * time.Millisecond
)

// Event is a change of a term's state, as told to Config.OnTransition.
type Event string

// What happens to a term: it is acquired once, and then either lost or released.
const (
	Acquired Event = "acquired"
	Lost     Event = "lost"
	Released Event = "released"
)

// Config configures an Elector.
type Config struct {
	// Client talks to Redis, with options as [Options] makes them: no retries, contexts honoured,
	// deadlines below a third of the TTL. Not closed here.
	Client redis.UniversalClient

	// Key holds the lease. The epoch is kept at `{<key>}:epoch`, and a release is announced on the
	// channel `{<key>}:released`. A key of another type at Key or at the epoch's is renamed to
	// `{<key>}:aside:<number>`. A key with a hash tag of its own gets `<key>:epoch`, `<key>:released`
	// and `<key>:aside:<number>`. All are in one Cluster slot.
	Key string

	// Instance names this process to operators and to the other contenders. Nothing depends on its
	// being unique.
	Instance string

	// TTL is how long the lease outlives its holder: a shorter one gives a dead leader's place away
	// sooner and is lost to shorter hitches of Redis. Renewals (TTL/3), retries (TTL/5) and the margin
	// (TTL/10) follow from it. All contenders should have the same. Default 15 s.
	TTL time.Duration

	// Contend, if set, is asked before each attempt and must return at once. after is for how long the
	// lease must have been free before it is taken: at most two thirds of a TTL. If first is false,
	// after is ignored and this elector is a reserve: it looks at the lease about once a TTL, in one
	// pipeline with the other electors of its Client, and takes a lease that has been free for half a
	// TTL. See "Reserves" in the package's words.
	Contend func() (after time.Duration, first bool)

	// Logger, default slog.Default().
	Logger *slog.Logger

	// OnTransition, if set, is called in Run's goroutine, which renews the lease: it must return at
	// once.
	OnTransition func(Event)
}

// Elector campaigns for a lease and leads while it holds it.
type Elector struct {
	client       redis.UniversalClient
	key          string
	epochKey     string
	aside        string // begins the names of keys that were renamed
	channel      string
	instance     string
	times        timings
	log          *slog.Logger
	onTransition func(Event)
	contend      func() (time.Duration, bool)

	running    atomic.Bool
	released   chan struct{} // one slot: somebody has released the lease
	subscribed atomic.Bool   // to releases
	readsWhole atomic.Bool   // this user may GET, and not GETRANGE
	attempts   *streak.Streak
	announces  *streak.Streak

	reserveAfter time.Duration // for how long the lease must have been free for a reserve to take it

	// Only Run's goroutine uses these.
	others         *together.Member // with whom a reserve looks at its lease
	lookAlone      bool             // the last look failed
	freeSince      time.Time        // when the lease was first seen free; zero: somebody had it
	acquirePending *lock            // an acquire of unknown fate: its token may yet turn up in Redis
	stuckWatch     stuckWatch

	mu        sync.Mutex
	term      *Term
	resigned  time.Duration // with which cool-down the term was given up, the longest if it was twice
	coolUntil time.Time     // no campaign before
	highest   uint64        // epoch met, here or in Redis
}

// New returns an Elector, or all that is wrong with the configuration. It does not talk to Redis.
func New(c Config) (*Elector, error) {
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	times := timings(c.TTL)

	prefix, err := slotPrefix(c.Key)
	errs := []error{err}
	if c.Instance == "" {
		errs = append(errs, errors.New("lease: Instance is empty"))
	}
	if c.TTL < minTTL {
		errs = append(errs, fmt.Errorf("lease: TTL is %s, must be at least %s", c.TTL, minTTL))
	} else if err := CheckClient(c.Client, times.call()); err != nil {
		errs = append(errs, fmt.Errorf("lease: Client does not suit a TTL of %s: %w", c.TTL, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	if c.Contend == nil {
		c.Contend = func() (time.Duration, bool) { return 0, true }
	}
	log := cmp.Or(c.Logger, slog.Default()).With("lease", c.Key)
	return &Elector{
		client:       c.Client,
		key:          c.Key,
		epochKey:     prefix + ":epoch",
		aside:        prefix + ":aside:",
		channel:      prefix + ":released",
		instance:     c.Instance,
		times:        times,
		log:          log,
		onTransition: c.OnTransition,
		contend:      c.Contend,
		reserveAfter: times.reserveAfter(),
		released:     make(chan struct{}, 1),
		attempts:     streak.New(log, "lease cannot be contended for", "lease can be contended for again"),
		announces: streak.New(log, "a release may not be announced: waiters find it when it could have expired",
			"a release is announced again", "allow", "PUBLISH"),
	}, nil
}

// slotPrefix begins the names of keys that share the key's slot, in a Cluster.
func slotPrefix(key string) (string, error) {
	if key == "" {
		return "", errors.New("lease: Key is empty")
	}
	if !strings.ContainsAny(key, "{}") {
		return "{" + key + "}", nil
	}
	// Redis' rule: what stands between the first { and the next }, if anything.
	if _, rest, ok := strings.Cut(key, "{"); ok && strings.IndexByte(rest, '}') > 0 {
		return key, nil
	}
	return "", fmt.Errorf("lease: Key %q has braces that are no hash tag", key)
}

// Run campaigns, leads, and campaigns again, until ctx ends or lead fails. It blocks, and leaves no
// goroutine behind.
//
// For each term lead is called in a goroutine of its own, with a context that ends with the term
// (its cause tells why, see the package's words) and with ctx. It must return when that context
// ends: the lease is renewed for at most one TTL more, and Run does not go on without it.
//
//   - lead returns nil: the lease is released, and Run campaigns again after at least one retry
//     interval, so that another may win.
//   - lead returns an error while its context lives: the lease is released, and Run returns the
//     error.
//   - lead returns an error after its context has ended: that is how work is interrupted, not a
//     failure. It is logged, and Run goes on.
//   - lead panics: the lease is released, and Run panics with a *panics.Recovered (of conc) that
//     holds the value and its stack.
//   - ctx ends: the term is left, the lease released, and Run returns nil.
//
// An Elector runs once at a time; a second Run returns an error at once.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("lease: Run is already running")
	}
	defer e.running.Store(false)
	var listener sync.WaitGroup
	defer listener.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener.Go(func() { e.listen(ctx) })
	e.others = together.Join(e.client, "looks")
	defer e.others.Leave()

	for {
		term := e.campaign(ctx)
		if term == nil {
			return nil // ctx has ended
		}
		work := start(term, lead)
		e.keep(term, work.done, term.ctx.Done())
		if err := e.leave(ctx, term, work); err != nil {
			return err
		}
	}
}

// Resign gives up the term, if there is one, and does not campaign before coolDown has passed. That
// is counted from the release of the lease, which follows when the work has ended, or from the call
// if there is no term. After a term it does not campaign within one retry interval in any case.
// Resign does not wait for the work to end.
func (e *Elector) Resign(coolDown time.Duration) {
	e.coolDown(coolDown)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil {
		e.resigned = max(e.resigned, coolDown)
		e.term.end(ErrResigned)
	}
}

// Term returns the present term and true, or false if this process does not lead. That is computed
// from the term's monotonic deadline, so that it is right also in a process that has just been
// woken from a pause.
func (e *Elector) Term() (*Term, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || !e.term.Valid() {
		return nil, false
	}
	return e.term, true
}

// install makes the term the present one, unless Resign was called while it was being won.
func (e *Elector) install(t *Term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.coolUntil) {
		return false
	}
	e.term, e.resigned = t, 0
	return true
}

// coolDownAgain begins the term's cool-down anew, now that the lease is released. Counted from the
// call of Resign it could be over before the work was joined, or while the others still leave the
// free lease to one another, and this process would win what it has just released.
func (e *Elector) coolDownAgain() {
	e.mu.Lock()
	d := max(e.resigned, e.times.retry())
	e.mu.Unlock()
	e.coolDown(d)
}

// coolDown keeps this elector from campaigning for d from now, or longer if it was already to cool
// down for longer.
func (e *Elector) coolDown(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := time.Now().Add(d); until.After(e.coolUntil) {
		e.coolUntil = until
	}
}

func (e *Elector) coolsDownFor() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.coolUntil)
}

// report tells of a transition once, in the log and to the caller.
func (e *Elector) report(ev Event, t *Term, cause error) {
	log := e.log.With("token", t.Token(), "epoch", t.Epoch())
	switch ev {
	case Acquired:
		log.Info("lease acquired")
	case Lost:
		log.Warn("lease lost", "cause", cause)
	case Released:
		log.Info("lease released", "cause", cause)
	}
	if e.onTransition != nil {
		e.onTransition(ev)
	}
}
