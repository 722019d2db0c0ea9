package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// DefaultHeartbeatInterval is what a zero Config.HeartbeatInterval means.
	DefaultHeartbeatInterval = 30 * time.Second
	// DefaultHeartbeatTTL is what a zero Config.HeartbeatTTL means.
	DefaultHeartbeatTTL = 90 * time.Second

	defaultDrain = 10 * time.Second
	// shards is how many beats it takes to look at every claim once. What was first registered together is in one of them, and is looked at
	// in that order: it lies side by side in Redis' memory, which makes a look at it twice as cheap.
	shards = 10
)

// Config of a Registry. Zero means default.
type Config struct {
	// Client carries registrations, releases, heals and look-ups. Required: a *redis.Client with MaxRetries -1 and
	// ContextTimeoutEnabled, or New refuses it. A write that the client repeats could land after the write that mended it.
	Client redis.UniversalClient
	// Control carries the heartbeat, so that a storm cannot starve it: a client made from lease.Options. Required.
	// Both must be at the same primary and database: see ErrClientsDiffer.
	Control redis.UniversalClient
	// Instance names this replica. Empty: host name and a random part, unique per process start. If an operator fixes it
	// the newest process of that name wins, and hands back at start what its former life left.
	Instance string
	// Layout names the keys; all replicas and readers share it.
	Layout Layout
	// HeartbeatInterval is the time between beats (default 30s), HeartbeatTTL how long one lasts (default 90s, at least
	// three intervals: with two, one lost beat kills). Shorter: the dead are found sooner, and a shorter
	// stall of Redis or of this process makes it look dead. All replicas must agree.
	HeartbeatInterval, HeartbeatTTL time.Duration
	// Drain is how long Run goes on beating after its context ended, for claims to be released (default 10s).
	Drain time.Duration
	// Displaced, if set, is told of a device held here that another instance, owner, heard later than this one did: it has a newer
	// socket there, most likely, and the one here is half open. Look whether it is, by a minute of silence say, and if so
	// release its claim: that is what makes the device routable where the entry still names this instance.
	// It is told within moments of the other's registration where Redis lets this user publish and subscribe, else within
	// eleven heartbeat intervals; of one claim not again within five minutes, unless the device was heard here meanwhile. A device that
	// speaks here all the same is taken back. It must not block, and may be called by several goroutines at once.
	// Without it nobody is asked about sockets here: a parked device whose entry names this instance by mistake is
	// routable again only when the socket here ends.
	Displaced func(imei, owner string)
	// NoReverseIndex saves the index' memory (61 bytes an entry): a dead owner is then swept by the audit alone.
	NoReverseIndex bool
	// Logger (default slog.Default()) and Registerer (nil: metrics are counted but not registered).
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.HeartbeatTTL = cmp.Or(c.HeartbeatTTL, DefaultHeartbeatTTL)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) check() error {
	var errs []error
	if c.Client == nil || c.Control == nil {
		errs = append(errs, errors.New("a Client and a Control are required"))
	} else {
		if err := lease.CheckClient(c.Client, 0); err != nil {
			errs = append(errs, fmt.Errorf("unfit Client: %w", err))
		}
		if err := lease.CheckClient(c.Control, c.HeartbeatInterval); err != nil {
			errs = append(errs, fmt.Errorf("unfit Control: %w", err))
		}
	}
	if c.HeartbeatInterval <= 0 {
		errs = append(errs, fmt.Errorf("HeartbeatInterval is %s, must be positive", c.HeartbeatInterval))
	}
	if c.HeartbeatTTL < 3*c.HeartbeatInterval {
		errs = append(errs, fmt.Errorf("HeartbeatTTL is %s, must be at least three times HeartbeatInterval (%s)", c.HeartbeatTTL, c.HeartbeatInterval))
	}
	if c.Drain < 0 {
		errs = append(errs, fmt.Errorf("negative Drain: %s", c.Drain))
	}
	if !validInstance(c.Instance) && c.Instance != "" {
		errs = append(errs, fmt.Errorf("bad Instance %q: at most 200 printable characters, without '/' and spaces", c.Instance))
	}
	return errors.Join(errs...)
}

func validInstance(id string) bool {
	bad := func(c rune) bool { return c == '/' || unicode.IsControl(c) || unicode.IsSpace(c) }
	return id != "" && len(id) <= 200 && utf8.ValidString(id) && !strings.ContainsFunc(id, bad)
}

// Registry is one replica's side of the registry. Create it with New, then Run it.
type Registry struct {
	// Set by New, read-only after.
	cfg     Config
	keys    Layout
	id      string
	unique  bool   // the id was made up here: no former life
	random  string // of the boot token
	spare   int    // see defaultSpare
	log     *slog.Logger
	metrics *metrics
	started chan struct{}
	wake    chan struct{} // to the writer: there is work
	scan    chan struct{} // to the reconciler: the index and the claims differ
	end     context.CancelCauseFunc
	differ  int // times that Client was not where Control is; touched by beats only

	mu      sync.Mutex // guards all below, and every device and claim
	changed *sync.Cond // signalled after each batch
	boot    string     // the boot token; "": Redis has not been met yet
	devices map[string]*device
	shards  [shards][]*device // what is looked at together: see device
	made    int               // devices, ever
	held    int               // devices with a claim
	stays   int               // of whoever needs the heartbeat to the end
	indexed int               // devices believed to be in the index
	urgent  queue
	checks  queue
	watched map[*device]struct{} // not settled, or unsure: looked at again until they are
	asks    []*Claim             // their disputes: the other owners are to be asked
	moves   []move               // to be told to Config.Displaced
	owed    map[*device]struct{} // a frame arrived too soon after the last look
	batches uint64               // begun and ended: odd while one is under way
	away    bool                 // the last batch failed
	lost    string               // the witness' last hold that may have lost entries
	beaten  time.Time            // last heartbeat that landed
	refused error                // the server refused one since
	healed  uint64

	// What a walk over all devices would find: see count.
	pending    int // not settled
	unreleased int // of those: not held
	vague      int // of those: a write of unknown fate was made
	disputed   int

	vagueUntil time.Time // the latest of all devices' unsure
	missed     *signs    // a surprise that everything is yet to be looked at for
	reconciled time.Time // when everything was last looked at
	landing    time.Time // until then a write of a device that was forgotten may land; zero: there is none
	searched   bool      // what was forgotten has been looked for since

	failing   map[string]error // by op: the last error, while it fails
	scanFails bool             // the reconciler's last scan failed
	drain     bool
	ready     bool // the former life has been handed back; index and claims may be compared
}

// New checks the configuration and returns a Registry that does nothing yet. It does not speak to Redis.
func New(cfg Config) (*Registry, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	r := &Registry{
		cfg: cfg, keys: cfg.Layout, id: cfg.Instance, log: cfg.Logger,
		random:  randomDigits(),
		spare:   defaultSpare,
		started: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		scan:    make(chan struct{}, 1),
		devices: make(map[string]*device),
		watched: make(map[*device]struct{}), owed: make(map[*device]struct{}),
		failing: make(map[string]error),
	}
	if r.id == "" {
		r.id, r.unique = uniqueInstance(), true
	}
	r.changed = sync.NewCond(&r.mu)
	var err error
	r.metrics, err = newMetrics(cfg.Registerer, func() float64 { return float64(r.Status().Devices) })
	if err != nil {
		return nil, fmt.Errorf("registry: metrics: %w", err)
	}
	return r, nil
}

// uniqueInstance is the host's name and eight random hex digits.
func uniqueInstance() string {
	host, err := os.Hostname()
	if err != nil || !validInstance(host) || len(host) > 64 {
		host = "instance"
	}
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return host + "-" + hex.EncodeToString(b)
}

func randomDigits() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = '0' + b[i]%10
	}
	return string(b)
}

// Run beats and writes until ctx ends; then it goes on beating until every claim is released and nobody
// stays, or the drain time has passed, joins what is under way, says goodbye and returns nil. It returns
// ErrSuperseded as soon as a newer process with the same instance id is met, and ErrClientsDiffer if the two clients
// are not at the same place. It leaves no goroutine behind and is called once.
func (r *Registry) Run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.mu.Lock()
	r.end = end
	r.mu.Unlock()

	p := pool.New().WithContext(life)
	p.Go(r.beats)
	p.Go(r.write)
	p.Go(r.reconcile)
	if r.cfg.Displaced != nil {
		p.Go(r.hear)
	}

	select {
	case <-ctx.Done():
		r.drained(life)
	case <-life.Done():
	}
	end(context.Canceled)
	_ = p.Wait() // they return nil
	r.close()
	err := context.Cause(life) // the first: ErrSuperseded if that was met before the end
	if errors.Is(err, ErrClientsDiffer) {
		return err
	}
	if !errors.Is(err, ErrSuperseded) {
		err = r.goodbye(context.WithoutCancel(ctx))
	}
	if err != nil {
		r.log.Error("a newer process has this instance id, this one ends", "instance", r.id)
	}
	return err
}

// Stay keeps Run beating, once its context has ended, until leave is called or the drain time has passed. It is
// for whoever rests on this instance's heartbeat: a leader's term takes its absence for a doubt.
func (r *Registry) Stay() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stays++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stays--
		r.changed.Broadcast()
	})
}

// drained waits until nobody stays and every claim is released and written, or the drain time has passed.
func (r *Registry) drained(life context.Context) {
	ctx, cancel := context.WithTimeout(life, r.cfg.Drain)
	defer cancel()
	r.mu.Lock()
	r.drain = true
	r.mu.Unlock()
	err := r.await(ctx, func() bool {
		return r.held == 0 && r.stays == 0 && (r.boot == "" || r.idle() && !r.astray())
	})
	if err != nil && context.Cause(life) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log.Warn("drain time has passed, what is left will be swept by the leader", "devices", r.held, "unwritten", r.pending)
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

// close ends every claim's wait: after Run nothing lands any more.
func (r *Registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.devices {
		if d.claim != nil {
			d.claim.end()
		}
	}
	r.start(true)
}

// Started is closed when the first attempt to meet Redis is over: the first heartbeat has landed and the former
// life of a fixed instance id is handed back, or Redis did not answer. Open the listeners then.
func (r *Registry) Started() <-chan struct{} { return r.started }

// Instance returns this replica's instance id.
func (r *Registry) Instance() string { return r.id }

// Layout returns the names of the keys.
func (r *Registry) Layout() Layout { return r.keys }

// Timing is how often this instance beats, and how long its heartbeat lasts.
func (r *Registry) Timing() guard.Timing {
	return guard.Timing{Interval: r.cfg.HeartbeatInterval, TTL: r.cfg.HeartbeatTTL}
}

func (r *Registry) bootToken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boot
}

// Status is what an operator wants to know of a replica's registry.
type Status struct {
	Instance  string            `json:"instance"`
	Boot      string            `json:"boot"`       // boot token; empty until Redis was met
	Devices   int               `json:"devices"`    // held now
	Pending   int               `json:"pending"`    // of those and of the released: not known to stand in Redis as they should
	Foreign   int               `json:"foreign"`    // held here, but the entry names another instance
	Healed    uint64            `json:"healed"`     // entries put back since start
	LastBeat  time.Time         `json:"last_beat"`  // local time; zero: none has landed yet
	Draining  bool              `json:"draining"`   // Run's context has ended
	Failing   map[string]string `json:"failing"`    // op -> last error, while it fails
	Refused   string            `json:"refused"`    // by which error Redis refused a heartbeat (wrong password, no rights, ...) since one landed
	Interval  string            `json:"interval"`   // between heartbeats
	TTL       string            `json:"ttl"`        // of a heartbeat
	IndexKept bool              `json:"index_kept"` // REGISTRY_REVERSE_INDEX
}

// Status returns the present state.
func (r *Registry) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		Instance: r.id, Boot: r.boot, Devices: r.held, Healed: r.healed, LastBeat: r.beaten, Draining: r.drain,
		Failing: map[string]string{}, Interval: r.cfg.HeartbeatInterval.String(), TTL: r.cfg.HeartbeatTTL.String(),
		IndexKept: !r.cfg.NoReverseIndex, Pending: r.pending, Foreign: r.disputed,
	}
	for op, err := range r.failing {
		s.Failing[op] = err.Error()
	}
	if r.refused != nil {
		s.Refused = r.refused.Error()
	}
	return s
}
