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

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/streak"
)

const (
	defaultTTL = 15 * time.Second
	// With less, scheduling and garbage collection alone lose the lease.
	minTTL = 100 * time.Millisecond
)

// Event is a change of a term's state, passed to Config.OnTransition.
type Event string

// A term is acquired once, and then either lost or released.
const (
	Acquired Event = "acquired"
	Lost     Event = "lost"
	Released Event = "released"
)

// Config configures an Elector.
type Config struct {
	// Client talks to Redis, with options such as [Options] returns. The elector does not close it.
	Client redis.UniversalClient

	// Key holds the lease. The epoch is kept at `{<key>}:epoch`, and a release is announced on the
	// channel `{<key>}:released`, in database n > 0 `db<n>:{<key>}:released`. A key of another type
	// at Key or at the epoch's is renamed to `{<key>}:aside:<number>`. For a key with a hash tag of
	// its own these have no further braces. All are in one Cluster slot.
	Key string

	// Instance names this process to operators and other contenders. It need not be unique.
	Instance string

	// TTL is how long the lease outlives its holder. A shorter one replaces a dead leader sooner,
	// but shorter hitches of Redis lose it. Default 15 s.
	TTL time.Duration

	// Yield, if set, returns at once how long this elector lets others go first when the lease
	// becomes free. It also looks at a held lease that much later, which costs Redis less. At most
	// two thirds of a TTL count.
	Yield func() time.Duration

	// Logger defaults to slog.Default().
	Logger *slog.Logger

	// OnTransition, if set, is called on Run's goroutine, which renews the lease: it must return at
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
	yield        func() time.Duration

	running    atomic.Bool
	released   chan struct{} // one slot: somebody has released the lease
	subscribed atomic.Bool   // to releases
	nextLook   atomic.Pointer[time.Time]
	attempts   *streak.Streak
	announces  *streak.Streak

	// Only Run's goroutine uses these.
	acquirePending *lock // an acquire of unknown outcome; its token may yet appear
	stuckWatch     stuckWatch

	mu        sync.Mutex
	term      *Term
	resigned  time.Duration // longest cool-down requested during this term
	coolUntil time.Time
	highest   uint64 // epoch met here or in Redis
}

// New returns an Elector, or an error with everything wrong in c. It does not talk to Redis.
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

	if c.Yield == nil {
		c.Yield = func() time.Duration { return 0 }
	}
	log := cmp.Or(c.Logger, slog.Default()).With("lease", c.Key)
	return &Elector{
		client:       c.Client,
		key:          c.Key,
		epochKey:     prefix + ":epoch",
		aside:        prefix + ":aside:",
		channel:      keyless.Channel(c.Client, prefix+":released"),
		instance:     c.Instance,
		times:        times,
		log:          log,
		onTransition: c.OnTransition,
		yield:        func() time.Duration { return min(c.Yield(), c.TTL*2/3) },
		released:     make(chan struct{}, 1),
		attempts:     streak.New(log, "cannot contend for the lease", "contending for the lease again"),
		announces: streak.New(log, "not allowed to announce releases; waiters notice when the lease can expire",
			"announcing releases again", "allow", "PUBLISH"),
	}, nil
}

func slotPrefix(key string) (string, error) {
	if key == "" {
		return "", errors.New("lease: Key is empty")
	}
	if !strings.ContainsAny(key, "{}") {
		return "{" + key + "}", nil
	}
	// Redis' rule: the tag is the text between the first { and the next }, if any.
	if _, rest, ok := strings.Cut(key, "{"); ok && strings.IndexByte(rest, '}') > 0 {
		return key, nil
	}
	return "", fmt.Errorf("lease: Key %q has braces but no hash tag", key)
}

// Run campaigns, leads, and campaigns again, until ctx ends or lead fails. It blocks, and leaves no
// goroutine behind. For each term it calls lead on a new goroutine, with the term's context. lead
// must return when that ends; see "Leaving" in the package documentation. If lead
//
//   - returns nil, Run campaigns again after at least one retry interval, so that another may win.
//   - returns an error while its context lives, Run returns it.
//   - returns an error after its context has ended, it is logged, and Run continues.
//   - panics, Run panics with a *panics.Recovered (of conc) that holds the value and its stack.
//
// In each case the lease is released first. If ctx ends, the term ends too, and Run returns nil.
// While Run runs, a second call returns an error at once.
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

// Resign gives up the term, if any, without waiting for the work, and does not campaign for
// coolDown, counted from the release of the lease, or without a term from the call. After a term
// that is at least one retry interval.
func (e *Elector) Resign(coolDown time.Duration) {
	e.coolDown(coolDown)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil {
		e.resigned = max(e.resigned, coolDown)
		e.term.end(ErrResigned)
	}
}

// Term returns the current term and true, or false if this process does not lead.
func (e *Elector) Term() (*Term, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || !e.term.Valid() {
		return nil, false
	}
	return e.term, true
}

// install sets the current term, unless Resign was called while it was being won.
func (e *Elector) install(t *Term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.coolUntil) {
		return false
	}
	e.term, e.resigned = t, 0
	return true
}

// coolDownAgain restarts the cool-down at the release. Otherwise it could end before the work is
// joined, or while the others hold back, and this process would win back the lease.
func (e *Elector) coolDownAgain() {
	e.mu.Lock()
	d := max(e.resigned, e.times.retry())
	e.mu.Unlock()
	e.coolDown(d)
}

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
