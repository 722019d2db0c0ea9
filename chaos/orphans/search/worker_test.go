package search

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/registry"
)

// conn has no deadlines of real time. One that subscribes hears nothing: while it read from the
// server it would never be idle to the bubble, whose clock would stop.
type conn struct {
	net.Conn
	closed chan struct{}
	close  func() error

	mu       sync.Mutex
	deaf     bool
	deadline time.Time // of deaf reads
}

func (c *conn) SetDeadline(at time.Time) error   { return c.SetReadDeadline(at) }
func (*conn) SetWriteDeadline(_ time.Time) error { return nil }
func (c *conn) Close() error                     { return c.close() }
func (c *conn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	return nil
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.deaf = c.deaf || bytes.Contains(bytes.ToLower(p[:min(len(p), 40)]), []byte("subscribe\r\n"))
	deaf := c.deaf
	c.mu.Unlock()
	if deaf {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	deaf, until := c.deaf, c.deadline
	c.mu.Unlock()
	if !deaf {
		return c.Conn.Read(p)
	}
	over := time.NewTimer(time.Hour)
	if !until.IsZero() {
		over.Reset(time.Until(until))
	}
	defer over.Stop()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-over.C:
		return 0, os.ErrDeadlineExceeded
	}
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(context.WithoutCancel(ctx), network, addr)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	return &conn{Conn: c, closed: closed, close: sync.OnceValue(func() error {
		close(closed)
		return c.Close()
	})}, nil
}

// worker is one process.
type worker struct {
	id    string
	dry   bool
	line  *line
	jan   *janitor.Janitor
	set   *orphan.Set
	stop  func()
	ended chan struct{}
}

// start starts a worker with the rules as they are.
func (w *world) start() {
	w.lives++
	k := &worker{id: fmt.Sprintf("w%d", w.lives), dry: w.dry, ended: make(chan struct{})}
	k.line = &line{c: w.clock, before: w.before, seen: func(cmd redis.Cmder) { w.saw(k, cmd) }}
	data, control := w.clients(k.line)
	logger := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: k.id, Logger: logger, Layout: w.layout,
		HeartbeatInterval: 30 * time.Second, HeartbeatTTL: 90 * time.Second,
	})
	require.NoError(w.t, err)
	k.set, err = orphan.New(orphan.Config{
		Rules: w.rulesNow(), Client: data, Layout: w.layout, Source: source{w, k}, Interval: w.interval, Logger: logger,
		Passed: func(r orphan.Result) { w.passed(k, r) },
	})
	require.NoError(w.t, err)
	k.jan, err = janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Sweeps: k.set.Sweeps(), Logger: logger, RedisShare: 1,
		DryRun: w.dry, LeaseTTL: time.Minute, Interval: 15 * time.Minute,
	})
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(k.jan.Run)
	k.stop = sync.OnceFunc(func() {
		stop()
		_ = replica.Wait()
		_, _ = data.Close(), control.Close()
		close(k.ended)
	})
	w.workers = append(w.workers, k)
	w.say("worker %s starts, dry %v, rules %v", k.id, k.dry, w.in)
}

// clients are those of a worker, for its sweeps and for its lease.
func (w *world) clients(l *line) (data, control redis.UniversalClient) {
	if !w.cluster {
		addr := w.s.master(0).Addr()
		own := lease.Options(w.options(addr))
		own.PoolSize = roomy
		one, other := redis.NewClient(w.options(addr)), redis.NewClient(own)
		one.AddHook(redistest.Intercept(wire{l, addr}.send))
		other.AddHook(redistest.Intercept(wire{l, addr}.send))
		return one, other
	}
	of := func() redis.UniversalClient {
		o := lease.ClusterOptions(w.clusterOptions())
		o.PoolSize, o.PipelinePoolSize = roomy, -1
		c := redis.NewClusterClient(o)
		c.OnNewNode(func(node *redis.Client) {
			node.AddHook(redistest.Intercept(wire{l, node.Options().Addr}.send))
		})
		return c
	}
	return of(), of()
}

// end ends all workers, in good order or not.
func (w *world) end(killed bool) {
	for _, k := range w.workers {
		if killed {
			k.line.cut()
		}
		go k.stop()
	}
	for _, k := range w.workers {
		<-k.ended
	}
	w.workers = nil
}

// passed hears of each pass. One that was held has not looked at what is marked, or another was
// before: the evidence begins anew.
func (w *world) passed(k *worker, r orphan.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Count("passes", 1)
	if r.Outcome != janitor.Done || r.Removed > 0 || r.Full && r.Condemned > 0 {
		w.note("%s: rule %s %s %s %s removed %d of %d, kept %v", k.id, r.Rule, r.Outcome, r.Reason, r.Detail, r.Removed, r.Condemned, r.Kept)
	}
	w.fell(k, r)
	w.Count(removed, r.Removed)
	if r.Outcome == janitor.Held {
		w.Count("held by "+r.Reason, 1)
	}
	if r.Outcome == janitor.Held && r.Reason != "mass_failure" && !k.dry {
		w.cut[r.Rule] = time.Now()
	}
}
