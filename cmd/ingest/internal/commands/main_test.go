package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	imei  = "356307042441013"
	other = "352093081452251"
	// patience bounds the wait for an event; no event takes that long.
	patience = time.Minute
)

// bench is a Redis with a test's own keys.
type bench struct {
	t      *testing.T
	server *redistest.Server
	rdb    *redis.Client
	layout registry.Layout
	quiet  time.Duration // of gateways
}

func setup(t *testing.T, server *redistest.Server) *bench {
	t.Helper()
	return &bench{t, server, server.Client(), registry.Layout{Prefix: redistest.Prefix(t)}, time.Millisecond}
}

// client returns a client with the program's options.
func (b *bench) client() *redis.Client {
	b.t.Helper()
	var target connect.Redis
	require.NoError(b.t, target.Parse("redis://"+b.server.Addr()))
	c, err := connect.Open(b.t.Context(), &target, time.Second)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = c.Close() })
	return c.Data.(*redis.Client)
}

// instance is a gateway with a reader of its commands, and registers devices like a replica.
type instance struct {
	*bench
	id      string
	gateway *gateway.Gateway
	addr    string
	reader  *Reader // the present life's
	stop    context.CancelFunc
	stopped chan error
}

// register makes the instance the device's owner, and so it stays until the device is elsewhere.
func (in *instance) register(imei string, _ func() error) gateway.Claim {
	_ = in.rdb.HSet(in.t.Context(), in.layout.Registry(), imei, in.id).Err()
	return claim{}
}

type claim struct{}

func (claim) Wait(context.Context) error { return nil }
func (claim) Touch()                     {}
func (claim) Err() error                 { return nil }
func (claim) Release()                   {}

// gate opens a gateway without a reader of commands.
func (b *bench) gate(id string) *instance {
	b.t.Helper()
	in := &instance{bench: b, id: id}
	in.gateway = gateway.New(gateway.Config{
		Register: in.register, Client: b.client(), Stream: b.layout.Prefix + "telemetry",
		Quiet: b.quiet, // the gateway's tests check that it is kept
	})
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := gateway.Listen(ctx, "127.0.0.1:0")
	require.NoError(b.t, err)
	in.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- in.gateway.Serve(ctx, ln) }()
	b.t.Cleanup(func() {
		cancel()
		require.NoError(b.t, <-served)
	})
	return in
}

// reads begins a life of the instance.
func (in *instance) reads(change ...func(*Config)) {
	in.t.Helper()
	cfg := Config{
		Instance: in.id, Layout: in.layout, Devices: in.gateway, Lookup: in.sender().Lookup, Client: in.client(), Blocking: in.client(),
		Drain: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	in.reader = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	in.stop, in.stopped = cancel, make(chan error, 1)
	reader, stopped := in.reader, in.stopped
	go func() { stopped <- reader.Run(ctx) }()
	in.t.Cleanup(func() {
		cancel()
		stopped <- <-stopped
	})
}

// ends stops the present life and waits for its end.
func (in *instance) ends() {
	in.t.Helper()
	in.stop()
	err := <-in.stopped
	in.stopped <- err
	require.NoError(in.t, err)
}

func (b *bench) instance(id string) *instance {
	in := b.gate(id)
	in.reads()
	return in
}

// tracker is a device with the commands it received.
type tracker struct {
	*sim.Device
	t    *testing.T
	mu   sync.Mutex
	told []string
}

// connects returns a device at the instance with one acknowledged frame.
func (in *instance) connects(imei string) *tracker {
	in.t.Helper()
	d := &tracker{Device: sim.New(imei, patience), t: in.t}
	in.t.Cleanup(d.Close)
	d.joins(in)
	d.reports()
	return d
}

func (d *tracker) joins(in *instance) {
	d.t.Helper()
	accepted, err := d.Connect(d.t.Context(), in.addr)
	require.NoError(d.t, err)
	require.True(d.t, accepted)
}

func (d *tracker) reports() {
	d.t.Helper()
	_, err := d.Send(d.t.Context(), teltonika.Codec8, sim.NewTrack(1).Next(1)...)
	require.NoError(d.t, err)
}

// obeys answers commands with "did <text>" until the test ends or stop is called.
func (d *tracker) obeys() (stop func()) {
	return d.answers(func(c sim.Command) []teltonika.Message {
		return []teltonika.Message{d.Executes(c, "did "+c.Text)}
	})
}

func (d *tracker) answers(f func(sim.Command) []teltonika.Message) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Follow(ctx, func(c sim.Command, say sim.Say) error { // until the socket ends
			d.mu.Lock()
			d.told = append(d.told, c.Text)
			d.mu.Unlock()
			for _, m := range f(c) {
				if err := say(c.Codec, m); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	stop = func() {
		cancel()
		<-done
	}
	d.t.Cleanup(stop)
	return stop
}

// mute is a device that never answers.
func mute(sim.Command) []teltonika.Message { return nil }

func (d *tracker) heard() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.told...)
}

// adds appends a command to an instance's stream. Further fields follow, and win.
func (b *bench) adds(instance, id, imei, text string, more ...string) string {
	b.t.Helper()
	return b.addsTo(Outbound(b.layout, instance), id, imei, text, more...)
}

func (b *bench) addsTo(stream, id, imei, text string, more ...string) string {
	b.t.Helper()
	values := append([]string{"id", id, "imei", imei, "text", text}, more...)
	at, err := b.rdb.XAdd(b.t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Result()
	require.NoError(b.t, err)
	return at
}

// outcomes returns all outcomes, oldest first.
func (b *bench) outcomes() []Outcome { b.t.Helper(); return outcomes(b.t, b.rdb, b.layout) }

func outcomes(t *testing.T, c *redis.Client, layout registry.Layout) (all []Outcome) {
	t.Helper()
	messages, err := c.XRange(t.Context(), Responses(layout), "-", "+").Result()
	require.NoError(t, err)
	for _, m := range messages {
		all = append(all, outcome(m))
	}
	return all
}

// awaits waits until there are exactly n outcomes, and no command is left.
func (b *bench) awaits(n int, instances ...string) []Outcome {
	b.t.Helper()
	b.await(func() bool {
		left := b.rdb.XLen(b.t.Context(), Queue(b.layout)).Val()
		for _, id := range instances {
			left += b.rdb.XLen(b.t.Context(), Outbound(b.layout, id)).Val()
		}
		return len(b.outcomes()) >= n && left == 0
	})
	all := b.outcomes()
	require.Len(b.t, all, n)
	return all
}

func (b *bench) await(what func() bool) {
	b.t.Helper()
	waittest.Until(b.t, time.Millisecond, what)
}

func (in *instance) counted(status string) int {
	return int(testutil.ToFloat64(in.reader.counted.WithLabelValues(status)))
}

// in formats a time from now as a field.
func in(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).UnixMilli()) }

// sender returns a Sender that follows the registry; every instance is alive.
func (b *bench) sender() *Sender {
	return &Sender{Client: b.rdb, Layout: b.layout, Lookup: func(ctx context.Context, imei string) (registry.Owner, error) {
		owner, err := b.rdb.HGet(ctx, b.layout.Registry(), imei).Result()
		if errors.Is(err, redis.Nil) {
			return registry.Owner{}, registry.ErrNotRegistered
		}
		return registry.Owner{Instance: owner, Live: true}, err
	}}
}

// lone returns a reader that does not run, and without devices that take commands.
func lone(instance string, layout registry.Layout, rdb *redis.Client) *Reader {
	return New(Config{
		Instance: instance, Layout: layout, Devices: stub(never), Client: rdb, Blocking: rdb,
		Lookup: func(context.Context, string) (registry.Owner, error) {
			return registry.Owner{}, registry.ErrNotRegistered
		},
		Logger: slog.New(slog.DiscardHandler),
	})
}
