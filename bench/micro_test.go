package bench

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// These measure our own side alone: scans and batches are answered before they reach the network.

// BenchmarkFullScanPage is what the janitor does with one page of 1000 live entries of 10 owners.
func BenchmarkFullScanPage(b *testing.B) {
	b.ReportAllocs()
	pages := make([][]string, 100)
	for i := range pages {
		for j := range page {
			pages[i] = append(pages[i], imei(i*page+j), owner("live", j%10))
		}
	}
	jan := newMicro(b, 10)
	jan.hook.scan = func(cmd *redis.ScanCmd, cursor uint64) {
		next := cursor + 1
		if next == uint64(len(pages)) {
			next = 0
		}
		cmd.SetVal(slices.Clone(pages[cursor]), next)
	}
	b.ResetTimer()
	for range (b.N + len(pages) - 1) / len(pages) { // an operation is a page
		jan.pass(b, janitor.Request{DryRun: true})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*page), "ns/entry")
}

// BenchmarkSweepBatch is what the janitor does with 500 entries of a dead owner: judged, batched,
// handed to the guard.
func BenchmarkSweepBatch(b *testing.B) {
	b.ReportAllocs()
	const batches = 100
	pages := make([][]string, batches*batch/page)
	for i := range pages {
		for j := range page {
			pages[i] = append(pages[i], imei(i*page+j), owner("dead", 0))
		}
	}
	jan := newMicro(b, 10)
	jan.hook.scan = func(cmd *redis.ScanCmd, cursor uint64) {
		next := cursor + 1
		if next == uint64(len(pages)) {
			next = 0
		}
		cmd.SetVal(slices.Clone(pages[cursor]), next)
	}
	b.ResetTimer()
	for range (b.N + batches - 1) / batches {
		jan.pass(b, janitor.Request{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/entry")
}

// BenchmarkRegister is what an owner does with one registration among many.
func BenchmarkRegister(b *testing.B) {
	b.ReportAllocs()
	jan := newMicro(b, 1)
	imeis := make([]string, b.N)
	for i := range imeis {
		imeis[i] = imei(i)
	}
	claims := make([]*registry.Claim, b.N)
	b.ResetTimer()
	for i, id := range imeis {
		claims[i] = jan.reg.Register(id)
	}
	for _, c := range claims {
		require.NoError(b, c.Wait(b.Context()))
	}
}

// BenchmarkFrame is what an owner does with one frame of a device whose entry stands.
func BenchmarkFrame(b *testing.B) {
	b.ReportAllocs()
	jan := newMicro(b, 1)
	c := jan.reg.Register(imei(0))
	require.NoError(b, c.Wait(b.Context()))
	b.ResetTimer()
	for range b.N {
		c.FrameReceived()
		c.FrameAcked()
	}
}

// micro is a replica whose dear commands are answered here.
type micro struct {
	hook *answers
	reg  *registry.Registry
	jan  *janitor.Janitor
}

// newMicro runs a leader on the shared server, among some living owners.
func newMicro(b *testing.B, living int) *micro {
	srv := redistest.Shared(b)
	keys := registry.Layout{Prefix: redistest.Prefix(b)}
	client, control := redis.NewClient(srv.Options()), redis.NewClient(lease.Options(srv.Options()))
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	m := &micro{hook: &answers{keys: keys}}
	client.AddHook(m.hook)
	for i := range living {
		require.NoError(b, client.Set(b.Context(), keys.Heartbeat(owner("live", i)), "0/0", time.Hour).Err())
	}
	var err error
	m.reg, err = registry.New(registry.Config{Client: client, Control: control, Layout: keys, Drain: time.Millisecond, Logger: quiet})
	require.NoError(b, err)
	m.jan, err = janitor.New(janitor.Config{
		Client: client, Control: control, Registry: m.reg, Interval: time.Hour, RedisShare: 1, LogBytes: -1, Logger: quiet,
	})
	require.NoError(b, err)
	guard := guard.New(client, client, keys, m.reg.Timing(), "nobody")
	w, err := guard.Tick(b.Context())
	require.NoError(b, err)
	require.NoError(b, client.HSet(b.Context(), keys.Witness(), "since", w.Now.Add(-time.Hour).UnixMilli()).Err())

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- m.reg.Run(ctx) }()
	<-m.reg.Started()
	go func() { ended <- m.jan.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-ended)
		require.NoError(b, <-ended)
		require.NoError(b, control.Close())
	})
	for len(m.jan.Status().Sweeps) < 2 {
		time.Sleep(time.Millisecond)
	}
	return m
}

func (m *micro) pass(b *testing.B, req janitor.Request) {
	reports, err := m.jan.Sweep(b.Context(), req)
	require.NoError(b, err)
	for _, r := range reports {
		require.Equal(b, janitor.Done, r.Outcome, "%+v", r)
	}
}

// answers is a hook that answers the registry's scan and every script that carries items.
type answers struct {
	keys registry.Layout
	scan func(cmd *redis.ScanCmd, cursor uint64)

	members int64 // of the index, as registrations go; only the registry's one writer gets there
}

func (a *answers) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch {
		case cmd.Name() == "hscan" && a.scan != nil:
			a.scan(cmd.(*redis.ScanCmd), args[2].(uint64))
			return nil
		case cmd.Name() == "evalsha":
			if answer := a.script(args); answer != nil {
				cmd.(*redis.Cmd).SetVal(answer)
				return nil
			}
		}
		return next(ctx, cmd)
	}
}

// script answers a batch of the guard, and a registration; nil: the server shall.
func (a *answers) script(args []any) any {
	keys, _ := strconv.Atoi(toString(args[2]))
	switch first := toString(args[3]); {
	case first == a.keys.Log() && keys == 7:
		return []any{"DONE", int64(len(args) - 3 - keys - 7), int64(0), "", int64(0)}
	case strings.HasPrefix(first, a.keys.Heartbeat("")) && keys == 5:
		a.members += int64(len(args) - 3 - keys - 4)
		return []any{"OK", int64(0), a.members, "", int64(0), int64(0), []any{}}
	}
	return nil
}

func toString(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	}
	return ""
}
