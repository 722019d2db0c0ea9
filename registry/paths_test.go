package registry_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func failing(name string) func(redis.Cmder) error {
	return func(cmd redis.Cmder) error {
		if cmd.Name() == name {
			return errLost
		}
		return nil
	}
}

func TestWhileMemoryIsFullOwnersBeatAndRegisterNothing(t *testing.T) {
	t.Parallel()
	srv, ctx := redistest.Start(t), t.Context()
	r, _ := runsWith(t, srv.Options(), srv.Options())
	require.NoError(t, r.Register("before", nobody).Wait(ctx))
	c, k := srv.Client(), r.Layout()
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	record := func() doubt.Record { return doubt.Parse(c.HGet(ctx, k.Beats(), r.Instance()).Val()) }
	later := r.Register("later", nobody)
	for range 3 {
		require.NoError(t, c.Del(ctx, k.Heartbeat(r.Instance())).Err())
		was := record()
		require.Eventually(t, func() bool { return record().Last > was.Last }, 30*time.Second, time.Millisecond)
		require.Positive(t, c.PTTL(ctx, k.Heartbeat(r.Instance())).Val())
	}
	require.Empty(t, r.Status().Failing["heartbeat"])
	require.Contains(t, r.Status().Failing["register"]+r.Status().Failing["heal"], "OOM")
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(t, later.Wait(ctx))
}

func TestAClaimThatEndsBeforeItLandsSaysSo(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		r.data.set(always, nil)
		c := r.Register("released")
		go func() { time.Sleep(time.Second); c.Release() }()
		require.ErrorIs(w, c.Wait(w.Context()), registry.ErrReleased)
		last := r.Register("to the end")
		w.end(r)
		require.ErrorIs(w, last.Wait(w.Context()), registry.ErrStopping)
	})
}

func TestAReplicaThatNeverMetRedisEndsAsSoonAsItsSocketsHave(t *testing.T) {
	inBubble(t, func(w *bubble) {
		w.first = func(r *replica) { r.control.set(always, nil) }
		r := w.start("r1", func(c *registry.Config) { c.Drain = time.Hour })
		c := r.Register("imei")
		r.stop()
		time.Sleep(time.Minute)
		begun := time.Now()
		c.Release()
		require.NoError(w, r.wait())
		require.Less(w, time.Since(begun), time.Minute)
	})
}
