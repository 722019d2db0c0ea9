// Package rollcall records which replica of a service holds which socket, in one hash in Redis, and
// keeps that true: every live socket is routable, nothing dead is, and nothing live is ever swept.
//
//	replica, err := rollcall.New(rollcall.Config{Redis: opt})
//	go replica.Run(ctx) // when ctx ends it closes the sockets and leaves
//
//	claim := replica.Register(id, rollcall.Socket{Close: conn.Close}) // never fails, never blocks
//	defer claim.Release()
//	for lines.Scan() { // ends when Rollcall closes the socket: its id has a newer one
//		...
//	}
//
//	owner, err := replica.Lookup(ctx, id) // from any replica: where is this socket?
//
// Each replica of the service runs one Replica. Package registry is its owner's side, with all that
// is guaranteed; package janitor sweeps out what the dead left, on the replica that holds the lease
// of package lease. A service whose processes only look up has a Reader.
//
// An id is one socket: a device's, or a "user|device" of a chat. Of two sockets of an id the one
// with the newest handshake wins, and Rollcall closes the other. So whoever is closed must be able
// to connect again.
package rollcall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

type (
	// Socket is what Rollcall may do with a socket: close it, and ask whether the other end answers.
	Socket = registry.Socket
	// Claim is a socket's hold on the registration of its id.
	Claim = registry.Claim
	// Owner is the instance that holds an id, and whether its heartbeat exists.
	Owner = registry.Owner
	// MovedError ends a claim whose id has a newer socket.
	MovedError = registry.MovedError
)

// Reasons for which a claim has ended, see Claim.Err; ErrReplaced also ends Run.
var (
	ErrReleased  = registry.ErrReleased
	ErrNoAnswer  = registry.ErrNoAnswer
	ErrTaken     = registry.ErrTaken
	ErrStopping  = registry.ErrStopping
	ErrIDTooLong = registry.ErrIDTooLong
	ErrReplaced  = registry.ErrReplaced
)

var (
	// ErrNotFound is returned by Lookup for an id that no instance holds.
	ErrNotFound = registry.ErrNotRegistered
	// ErrPartitionsDiffer ends Run if the fleet has another number of partitions.
	ErrPartitionsDiffer = partition.ErrPartitionsDiffer
	// ErrNoJanitor is returned by what only a replica without Janitor.Off can do.
	ErrNoJanitor = errors.New("rollcall: this replica has no janitor")
)

// A Directory answers where ids are: a Replica, a Reader, or in tests a rollcalltest.Map.
type Directory interface {
	// Lookup returns the owner of an id, or ErrNotFound. Any other error is Redis'.
	Lookup(ctx context.Context, id string) (Owner, error)
	// LookupMany leaves out ids that nobody holds.
	LookupMany(ctx context.Context, ids []string) (map[string]Owner, error)
	// Owners returns every instance.
	Owners(ctx context.Context) ([]Owner, error)
	// Holdings walks the ids that an instance holds. An error ends the walk.
	Holdings(ctx context.Context, instance string) iter.Seq2[string, error]
}

// Status is what a replica knows of itself, without asking Redis.
type Status struct {
	Registry registry.Status `json:"registry"`
	Janitor  *janitor.Status `json:"janitor,omitempty"` // nil with Janitor.Off
}

// Replica is this process' part in a fleet. Its methods are safe for concurrent use.
type Replica struct {
	Directory
	reg     *partition.Registry
	jan     *partition.Janitor // nil: off
	began   time.Time
	clients []redis.UniversalClient
	ran     atomic.Bool

	onReconciled func()        // or nil
	reconciled   chan struct{} // one slot: call it
}

// New returns a Replica, or one error with everything that is wrong in c. It does not talk to
// Redis.
func New(c Config) (*Replica, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	load, control := c.clients()
	r := &Replica{
		began: time.Now(), clients: []redis.UniversalClient{load, control},
		onReconciled: c.OnReconciled, reconciled: make(chan struct{}, 1),
	}
	var err error
	r.reg, err = partition.NewRegistry(registry.Config{
		Client: load, Control: control, Instance: c.Instance, Layout: guard.Layout{Prefix: c.Prefix},
		HeartbeatInterval: c.Interval, HeartbeatTTL: c.TTL, Drain: c.Drain, OnReconciled: func() { wait.Nudge(r.reconciled) },
		Logger: c.Logger, Registerer: c.Registerer, Namespace: c.Namespace,
	}, c.Partitions)
	if err == nil && !c.Janitor.Off {
		j := c.Janitor
		r.jan, err = partition.NewJanitor(janitor.Config{
			Client: load, Control: control, Interval: j.ScanEvery, LeaseTTL: j.LeaseTTL, RedisShare: j.RedisShare,
			LogBytes: j.LogBytes, DryRun: j.DryRun, StartSpan: j.StartSpan, Sweeps: c.Sweeps,
			Logger: c.Logger, Registerer: c.Registerer, Namespace: c.Namespace,
		}, r.reg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rollcall: %w", err), r.close())
	}
	r.Directory = r.reg
	return r, nil
}

func (r *Replica) close() (err error) {
	for _, c := range r.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Run registers, beats, heals, and sweeps while this replica leads, until ctx ends. Then it closes
// every socket, waits for the releases, at most for Config.Drain, and leaves. It returns nil,
// ErrReplaced if a newer process has this instance id, or ErrPartitionsDiffer. It closes the
// connections: a second call returns an error at once.
func (r *Replica) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return errors.New("rollcall: Run was called before; make another Replica")
	}
	g := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	g.Go(r.reg.Run)
	g.Go(r.report)
	if r.jan != nil {
		g.Go(r.jan.Run)
	}
	return errors.Join(g.Wait(), r.close())
}

// report does not wait, when this replica stops, for a callback that does not return.
func (r *Replica) report(ctx context.Context) error {
	for {
		select {
		case <-r.reconciled:
		case <-ctx.Done():
			return nil
		}
		if r.onReconciled == nil {
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.onReconciled()
		}()
		select {
		case <-done:
		case <-ctx.Done():
			return nil
		}
	}
}

// Started is closed once the first heartbeat has landed, or Redis did not answer: listen then.
func (r *Replica) Started() <-chan struct{} { return r.reg.Started() }

// Ready returns nil, or why no socket should be sent here: no heartbeat has landed yet, Redis
// refuses it, messages do not arrive, or this replica stops. Once all that was right, or a TTL has
// passed, Redis no longer counts: taking every replica out of service would only make an outage
// worse.
func (r *Replica) Ready() error {
	switch s := r.reg.Status(); {
	case s.Draining:
		return ErrStopping
	case !s.LastBeat.IsZero() && s.Heard || time.Since(r.began) >= r.reg.Timing().TTL:
		return nil
	case !s.LastBeat.IsZero():
		return errors.New("rollcall: this replica does not hear its own messages: " +
			"allow PUBLISH and SUBSCRIBE on the channel of its heartbeat's name (ACL)")
	case s.Refused != "":
		return fmt.Errorf("rollcall: Redis refuses the heartbeat: %s", s.Refused)
	}
	return errors.New("rollcall: no heartbeat has landed yet")
}

// Register registers a socket under its id. It never fails, never blocks and calls nothing: if
// Redis is away, the registration lands later. Without a Socket.Close it panics.
func (r *Replica) Register(id string, s Socket) *Claim { return r.reg.Register(id, s) }

// Instance returns this replica's id.
func (r *Replica) Instance() string { return r.reg.Instance() }

// Status returns what this replica knows of itself.
func (r *Replica) Status() Status {
	s := Status{Registry: r.reg.Status()}
	if r.jan != nil {
		of := r.jan.Status()
		s.Janitor = &of
	}
	return s
}

// Sweep runs one pass of each sweep, or of the named one, on a leader: see janitor.Janitor.Sweep.
func (r *Replica) Sweep(ctx context.Context, req janitor.Request) ([]janitor.Report, error) {
	if r.jan == nil {
		return nil, ErrNoJanitor
	}
	return r.jan.Sweep(ctx, req)
}

// Pause holds all sweeping of the fleet until p.Until, or Resume. It works on any replica with a
// janitor.
func (r *Replica) Pause(ctx context.Context, p janitor.Pause) error {
	if r.jan == nil {
		return ErrNoJanitor
	}
	return r.jan.Pause(ctx, p)
}

// Resume ends a pause.
func (r *Replica) Resume(ctx context.Context) error {
	if r.jan == nil {
		return ErrNoJanitor
	}
	return r.jan.Resume(ctx)
}

// Resign gives up this replica's leases for a lease TTL, or returns a janitor.NotLeaderError.
func (r *Replica) Resign(ctx context.Context) error {
	if r.jan == nil {
		return ErrNoJanitor
	}
	return r.jan.Resign(ctx)
}
