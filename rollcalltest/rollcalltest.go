// Package rollcalltest is for tests of services that use Rollcall: real replicas on a Redis in this
// process. In a testing/synctest bubble everything runs by the bubble's clock, so minutes of life
// and death take milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		fleet := rollcalltest.New(t)
//		a, b := fleet.Start("a", rollcall.Config{}), fleet.Start("b", rollcall.Config{})
//		a.Register("alice", rollcalltest.NoSocket).Wait(t.Context())
//		a.Cut()
//		time.Sleep(2 * time.Minute) // its entries are swept: b.Lookup returns rollcall.ErrNotFound
//	})
package rollcalltest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/testservers/fakeredis"
)

// NoSocket is for claims of tests that have no socket.
var NoSocket = rollcall.Socket{Close: func() error { return nil }}

// Fleet is a Redis in this process, with replicas on it.
type Fleet struct {
	t      testing.TB
	server *miniredis.Miniredis
	opt    *redis.Options
}

// New returns a fleet without replicas. Everything ends with the test, or with its bubble.
func New(t testing.TB) *Fleet {
	t.Helper()
	server, opt := fakeredis.Start(t)
	return &Fleet{t: t, server: server, opt: opt}
}

// Options are those of the fleet's Redis, for clients of your own.
func (f *Fleet) Options() *redis.Options {
	o := *f.opt
	return &o
}

// FlushAll loses everything, as FLUSHALL does. Replicas put back what they hold.
func (f *Fleet) FlushAll() { f.server.FlushAll() }

// StepClock steps the server's clock, until the returned function is called.
func (f *Fleet) StepClock(by time.Duration) (back func()) {
	ended, end := make(chan struct{}), make(chan struct{})
	step := func() { f.server.SetTime(time.Now().Add(by)) }
	step()
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				step()
			case <-end:
				f.server.SetTime(time.Time{})
				return
			}
		}
	}()
	back = sync.OnceFunc(func() { close(end); <-ended })
	f.t.Cleanup(back)
	return back
}

// Replica is a running replica.
type Replica struct {
	*rollcall.Replica
	stop  context.CancelFunc
	ended chan struct{}
	err   error // after ended

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

// Start runs a replica until the test ends, and waits for its first heartbeat. c.Redis and
// c.Instance are set here, and c.Drain is a second by default, since NoSocket is never released.
func (f *Fleet) Start(name string, c rollcall.Config) *Replica {
	f.t.Helper()
	r := &Replica{ended: make(chan struct{}), open: make(map[net.Conn]bool)}
	c.Redis, c.Instance, c.Drain = f.Options(), name, cmp.Or(c.Drain, time.Second)
	c.Redis.Dialer = r.dialer(f.opt.Dialer)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("instance", name)
	}
	var err error
	if r.Replica, err = rollcall.New(c); err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	r.stop = stop
	go func() {
		defer close(r.ended)
		r.err = r.Run(ctx)
	}()
	f.t.Cleanup(func() { _ = r.Stop() })
	<-r.Started()
	return r
}

func (r *Replica) dialer(
	dial func(context.Context, string, string) (net.Conn, error),
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.cut {
			return severed{conn}, conn.Close()
		}
		r.open[conn] = true
		return conn, nil
	}
}

// severed has lost the other end. Dialing itself succeeds: after failures go-redis leaves a
// goroutine that a bubble would wait for.
type severed struct{ net.Conn }

var errCut = errors.New("rollcalltest: cut off from Redis")

func (severed) Read([]byte) (int, error)  { return 0, errCut }
func (severed) Write([]byte) (int, error) { return 0, errCut }

// Stop ends the replica in good order, and returns what Run did.
func (r *Replica) Stop() error {
	r.stop()
	<-r.ended
	return r.err
}

// Cut cuts the replica off from Redis until Mend: to all others it is dead.
func (r *Replica) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for conn := range r.open {
		_ = conn.Close()
	}
	clear(r.open)
}

// Mend ends Cut.
func (r *Replica) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

// Map is a rollcall.Directory with these entries, for code that only looks up.
type Map map[string]rollcall.Owner

// Lookup is part of rollcall.Directory.
func (m Map) Lookup(_ context.Context, id string) (rollcall.Owner, error) {
	if owner, there := m[id]; there {
		return owner, nil
	}
	return rollcall.Owner{}, rollcall.ErrNotFound
}

// LookupMany is part of rollcall.Directory.
func (m Map) LookupMany(_ context.Context, ids []string) (map[string]rollcall.Owner, error) {
	found := maps.Clone(m)
	maps.DeleteFunc(found, func(id string, _ rollcall.Owner) bool { return !slices.Contains(ids, id) })
	return found, nil
}

// Owners is part of rollcall.Directory. They are sorted by name.
func (m Map) Owners(context.Context) ([]rollcall.Owner, error) {
	owners := slices.SortedFunc(maps.Values(m), func(a, b rollcall.Owner) int {
		return strings.Compare(a.Instance, b.Instance)
	})
	return slices.CompactFunc(owners, func(a, b rollcall.Owner) bool { return a.Instance == b.Instance }), nil
}

// Holdings is part of rollcall.Directory. The ids are sorted.
func (m Map) Holdings(_ context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, id := range slices.Sorted(maps.Keys(m)) {
			if m[id].Instance == instance && !yield(id, nil) {
				return
			}
		}
	}
}
