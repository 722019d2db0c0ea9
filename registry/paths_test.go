package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard/doubt"
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
	require.NoError(t, r.Register("before").Wait(ctx))
	c, k := srv.Client(), r.Layout()
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	record := func() doubt.Record { return doubt.Parse(c.HGet(ctx, k.Beats(), r.Instance()).Val()) }
	later := r.Register("later")
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
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		landed := r.register(t, "landed")
		landed.Release()
		require.NoError(t, landed.Wait(t.Context()), "it has landed, whatever came later")

		r.data.set(always, nil)
		c := r.Register("released")
		go func() { time.Sleep(time.Second); c.Release() }()
		require.ErrorIs(t, c.Wait(t.Context()), registry.ErrReleased)
		older := r.Register("superseded")
		r.Register("superseded")
		require.ErrorIs(t, older.Wait(t.Context()), registry.ErrReleased)

		last := r.Register("to the end")
		w.end(r)
		require.ErrorIs(t, last.Wait(t.Context()), registry.ErrReleased)
	})
}

func TestAReplicaThatNeverMetRedisEndsAsSoonAsItsSocketsHave(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1", func(c *registry.Config) {
			c.Drain = time.Hour
			see := &faults{}
			see.set(always, nil)
			c.Control.(*redis.Client).AddHook(see)
		})
		c := r.Register("imei")
		r.stop()
		time.Sleep(time.Minute)
		begun := time.Now()
		c.Release()
		require.NoError(t, r.wait())
		require.Less(t, time.Since(begun), time.Minute)
	})
}

func TestAProcessThatIsSupersededWhileItStopsSaysSo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		newer := w.start("r1")
		r.stop()
		require.ErrorIs(t, r.wait(), registry.ErrSuperseded)
		require.Positive(t, w.Exists(t.Context(), w.Heartbeat("r1")).Val(), "the newer one lives")
		w.end(newer)
	})
}

func TestWhatAFormerLifeLeftIsHandedBackOnceTheRegistryCanBeScanned(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		require.NoError(t, w.HSet(t.Context(), w.Registry(), "left", "r1", "others", "r2").Err())
		see := &faults{}
		see.set(failing("hscan"), nil)
		r := w.start("r1", func(c *registry.Config) { c.Client.(*redis.Client).AddHook(see) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		<-r.Started()
		require.Positive(t, r.failures("heal"))
		require.Contains(t, r.Status().Failing["heal"], errLost.Error())
		require.Equal(t, "r1", w.owner("left"))
		see.set(nil, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, w.owner("left"))
		require.Equal(t, "r2", w.owner("others"))
		require.Empty(t, r.Status().Failing)
		w.end(r)
	})
}

func TestALookThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		c := r.register(t, "imei")
		time.Sleep(2 * time.Second)
		w.HDel(t.Context(), w.Registry(), "imei")
		r.data.set(failing("evalsha_ro"), nil)
		c.FrameReceived()
		synctest.Wait()
		require.InDelta(t, 1, r.failures("heal"), 0)
		require.Equal(t, 1, r.Status().Pending)
		require.NotEmpty(t, r.Status().Failing["heal"])
		r.data.set(nil, nil)
		time.Sleep(r.Timing().Interval / 5)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.Zero(t, r.Status().Pending)
		require.Empty(t, r.Status().Failing)
		w.end(r)
	})
}

// pages makes a scan return n elements at a time; miniredis returns all at once.
type pages struct {
	n    int
	mu   sync.Mutex
	left map[string][]string // by key: what the first page left out
}

func (p *pages) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *pages) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *pages) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		scan, ok := cmd.(*redis.ScanCmd)
		if !ok {
			return next(ctx, cmd)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		key, cursor := scan.Args()[1].(string), scan.Args()[2].(uint64)
		if cursor == 0 {
			if err := next(ctx, cmd); err != nil {
				return err
			}
			p.left[key], _ = scan.Val()
		}
		page := p.left[key][:min(p.n, len(p.left[key]))]
		if p.left[key] = p.left[key][len(page):]; len(p.left[key]) == 0 {
			cursor = 0
		} else {
			cursor++
		}
		scan.SetVal(page, cursor)
		return nil
	}
}

func TestAFormerLifeIsHandedBackFromEveryPageOfAScan(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		left := map[string]any{"theirs": "r2"}
		for i := range 25 {
			left[fmt.Sprint(i)] = "r1"
			w.SAdd(t.Context(), w.Devices("r1"), i, fmt.Sprint("in the index only ", i))
		}
		require.NoError(t, w.HSet(t.Context(), w.Registry(), left).Err())
		r := w.start("r1", index, func(c *registry.Config) {
			c.Client.(*redis.Client).AddHook(&pages{n: 4, left: map[string][]string{}})
		})
		<-r.Started()
		require.Equal(t, map[string]string{"theirs": "r2"}, w.HGetAll(t.Context(), w.Registry()).Val())
		without := !r.Status().IndexKept
		require.Equal(t, without, w.Exists(t.Context(), w.Devices("r1")).Val() == 1)
		require.Zero(t, r.Remembered())
		w.end(r)
	})
}
