package registry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/fakeredis"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// faults is a hook that breaks calls. A lost reply is two faults: the call ran, or it did not.
type faults struct {
	mu            sync.Mutex
	before, after func(redis.Cmder) error // nil: none
}

var errLost = errors.New("connection lost")

const interval, ttl = registry.DefaultHeartbeatInterval, registry.DefaultHeartbeatTTL

func (f *faults) set(before, after func(redis.Cmder) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// meets loses the connection with everything on it, but for what opens it.
func (f *faults) meets(_ context.Context, cmds []redis.Cmder, send func() error) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	lost := func(meets func(redis.Cmder) error) error {
		for _, cmd := range cmds {
			if meets == nil || cmd.Name() == "hello" || cmd.Name() == "client" {
				continue
			}
			if err := meets(cmd); err != nil {
				return redistest.Fail(cmds, err)
			}
		}
		return nil
	}
	if err := lost(before); err != nil {
		return err
	}
	if err := send(); err != nil { // error replies arrive
		return err
	}
	return lost(after)
}

func always(redis.Cmder) error { return errLost }

// lost is how a call is lost: its request, or its reply.
var lost = map[string][2]func(redis.Cmder) error{
	"requests are lost": {always, nil}, "replies are lost": {nil, always},
}

// checkedBy returns the ids whose entries a command checks for an owner; nil if it does something
// else.
func checkedBy(cmd redis.Cmder) []any {
	if args := cmd.Args(); args[0] == "evalsha_ro" && len(args) > 9 && args[7] == "" {
		return args[9:]
	}
	return nil
}

// replica is a registry running in a bubble, with faults on its connections.
type replica struct {
	*registry.Registry
	w             *bubble
	links         links
	data, control faults
	metrics       *prometheus.Registry
	stop          context.CancelFunc
	ended         chan error
	over          bool
}

// bubble is a test in a synctest bubble with a server, and a client beside the replicas.
type bubble struct {
	*testing.T
	*redis.Client
	registry.Layout
	options  *redis.Options
	pool     int // connections of a replica; 0: as usual
	server   *miniredis.Miniredis
	replicas []*replica
	first    func(r *replica) // breaks its calls before it starts
}

// links are a replica's connections.
type links struct {
	mu   sync.Mutex
	off  bool
	open []net.Conn
}

type dialer = func(context.Context, string, string) (net.Conn, error)

func (l *links) dialer(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.off {
			return nil, errLost
		}
		conn, err := dial(ctx, network, addr)
		l.open = append(l.open, conn)
		return conn, err
	}
}

// cut ends all connections of a replica, and lets it dial none.
func (r *replica) cut(off bool) { r.links.cut(off) }

func (l *links) cut(off bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = off
	for _, conn := range l.open {
		if off && conn != nil {
			_ = conn.Close()
		}
	}
	l.open = nil
}

// step makes the server's clock differ from that of the replicas until the test ends.
func (w *bubble) step(by time.Duration) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	w.server.SetTime(time.Now().Add(by))
	wg.Go(func() {
		for wait.For(ctx, 10*time.Millisecond) {
			w.server.SetTime(time.Now().Add(by))
		}
	})
	w.Cleanup(func() { cancel(); wg.Wait() })
}

// inBubble runs f against miniredis with a virtual clock, and ends the replicas that are left.
func inBubble(t *testing.T, f func(w *bubble)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, o := fakeredis.Start(t)
		c := redis.NewClient(lease.Options(o))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		w := &bubble{T: t, Client: c, options: o, server: server}
		f(w)
		for _, r := range w.replicas {
			if !r.over {
				w.end(r)
			}
		}
	})
}

// eachBubble runs f for each row in a bubble of its own.
func eachBubble[C any](t *testing.T, rows map[string]C, f func(w *bubble, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range rows {
		t.Run(name, func(t *testing.T) { inBubble(t, func(w *bubble) { f(w, c) }) })
	}
}

func (w *bubble) start(id string, change ...func(*registry.Config)) *replica {
	r := &replica{w: w, metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	w.replicas = append(w.replicas, r)
	o := lease.Options(w.options)
	o.Dialer, o.PoolSize = r.links.dialer(o.Dialer), cmp.Or(w.pool, o.PoolSize)
	data, control := redis.NewClient(o), redis.NewClient(o)
	if w.first != nil {
		w.first(r)
	}
	data.AddHook(redistest.Intercept(r.data.meets))
	control.AddHook(redistest.Intercept(r.control.meets))
	cfg := registry.Config{Client: data, Control: control, Instance: id, Registerer: r.metrics, Namespace: "teltonika", Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	r.Registry, err = registry.New(cfg)
	require.NoError(w, err)
	r.RememberFewer(1000)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		err := r.Run(ctx)
		_ = data.Close()
		_ = control.Close()
		r.ended <- err
	}()
	w.Cleanup(func() { r.cut(false); cancel(); <-gone })
	synctest.Wait()
	return r
}

func (w *bubble) end(r *replica) {
	require.Empty(w, r.Miscounted())
	r.stop()
	require.NoError(w, r.wait())
	require.Empty(w, r.Miscounted())
	require.ErrorContains(w, r.Run(w.Context()), "Run was called before")
}

var errGoesOn = errors.New("the replica goes on")

// wait returns the result of Run, or fails after an hour of virtual time.
func (r *replica) wait() error {
	r.over = true
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Hour):
		return errGoesOn
	}
}

// kill ends a replica without goodbye: nothing that it sends arrives any more.
func (w *bubble) kill(r *replica) {
	r.loses(always, nil)
	w.end(r)
}

// loses breaks the calls of both clients.
func (r *replica) loses(before, after func(redis.Cmder) error) {
	r.data.set(before, after)
	r.control.set(before, after)
}

func (w *bubble) owner(imei string) string {
	return w.HGet(context.Background(), w.Registry(), imei).Val()
}

// is checks what an id's entry names.
func (w *bubble) is(imei, owner string, says ...any) {
	w.Helper()
	require.Equal(w, owner, w.owner(imei), says...)
}

// write and drop change entries behind the replicas' backs.
func (w *bubble) write(pairs ...any) {
	require.NoError(w, w.HSet(context.Background(), w.Registry(), pairs...).Err())
}

func (w *bubble) drop(imeis ...string) {
	require.NoError(w, w.HDel(context.Background(), w.Registry(), imeis...).Err())
}

func (w *bubble) del(keys ...string) {
	require.NoError(w, w.Del(context.Background(), keys...).Err())
}

// pass lets time pass, with all its effects.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *replica) failures(op string) float64 {
	families, _ := r.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "teltonika_registry_failures_total" {
			for _, m := range f.Metric {
				if m.Label[0].GetValue() == op {
					return m.Counter.GetValue()
				}
			}
		}
	}
	return -1
}

// nobody is a socket that nobody minds.
var nobody = registry.Socket{Close: func() error { return nil }}

func (r *replica) Register(id string) *registry.Claim { return r.Registry.Register(id, nobody) }

func (r *replica) register(imei string) *registry.Claim {
	c := r.Register(imei)
	require.NoError(r.w, c.Wait(r.w.Context()))
	return c
}

func (r *replica) registerMany(n int) []*registry.Claim {
	claims := make([]*registry.Claim, n)
	for i := range claims {
		claims[i] = r.Register(fmt.Sprintf("imei-%d", i))
	}
	for _, c := range claims {
		require.NoError(r.w, c.Wait(r.w.Context()))
	}
	return claims
}

// touch has an entry checked.
func touch(c *registry.Claim) {
	c.Touch()
	pass(2 * time.Second)
}
