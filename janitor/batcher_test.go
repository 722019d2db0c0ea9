package janitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// stuttering is a sweep that finds each entry of an owner three times, as scans may.
type stuttering struct{}

func (stuttering) Name() string            { return "stuttering" }
func (stuttering) Interval() time.Duration { return 0 }
func (stuttering) Run(ctx context.Context, p *janitor.Pass) error {
	if p.Owner() == "" {
		return nil // not requested by the test
	}
	b := janitor.NewBatcher(p)
	for i := range 10 {
		for range 3 {
			if err := b.Add(ctx, "dead", fmt.Sprint(i)); err != nil {
				return err
			}
		}
	}
	return b.Flush(ctx)
}

func TestBatchesHoldNothingTwice(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := redis.NewClient(lease.Options(w.Options))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		l := registry.Layout{Prefix: w.Prefix}
		r, err := registry.New(registry.Config{Client: c, Control: c, Instance: "me", Layout: l, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		witness, err := guard.New(c, c, l, r.Timing(), "me").Tick(ctx)
		require.NoError(t, err)
		require.NoError(t, c.HSet(ctx, l.Witness(), "since", witness.Now.Add(-time.Hour).UnixMilli()).Err())
		require.NoError(t, c.Set(ctx, l.Heartbeat("me"), "1/1", time.Minute).Err())
		dead := doubt.Record{Last: witness.Now.UnixMilli() - 200_000, TTL: 90_000, Due: 38_000, Born: 1, State: doubt.Holds}
		require.NoError(t, c.HSet(ctx, l.Beats(), "dead", dead.String()).Err())
		j, err := janitor.New(janitor.Config{
			Client: c, Control: c, Registry: r, DeleteBatch: 4, Interval: time.Hour, RedisShare: 1,
			Sweeps: []janitor.Sweeper{stuttering{}}, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- j.Run(ctx) }()
		require.Eventually(t, func() bool { return len(j.Status().Sweeps) == 3 }, 20*time.Second, 5*time.Millisecond)
		for i := range 10 {
			require.NoError(t, c.HSet(ctx, l.Registry(), fmt.Sprint(i), "dead").Err())
		}
		reports, err := j.Sweep(ctx, janitor.Request{Owner: "nobody"}) // the other sweeps find nothing
		require.NoError(t, err)
		require.Equal(t, 10, reports[len(reports)-1].Evicted+reports[0].Evicted+reports[1].Evicted)
		require.Equal(t, "10", c.HGet(ctx, l.Witness(), "evicted_total").Val())
		cancel()
		require.NoError(t, <-ended)
	})
}
