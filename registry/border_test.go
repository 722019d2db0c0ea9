package registry_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAGapIsMoreThanGAPAndTicksOfOneMillisecondAreNone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		timing := guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}
		g := guard.New(w.Client, w.Client, w.Layout, timing, "leader")
		tick := func() guard.Witness {
			t.Helper()
			got, err := g.Tick(t.Context())
			require.NoError(t, err)
			return got
		}
		first := tick()
		require.Equal(t, first.Since, tick().Since, "in the same millisecond, right behind a hold")
		time.Sleep(timing.Gap())
		require.Equal(t, first.Since, tick().Since, "GAP itself is none")
		require.Equal(t, first.Since, tick().Since)
		time.Sleep(timing.Gap() + time.Millisecond)
		require.NotEqual(t, first.Since, tick().Since)
	})
}

func TestADeviceThatRegistersAgainIsNoReasonToCompareTheIndex(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.register(t, "imei")
		r.register(t, "imei")
		synctest.Wait()
		var scans atomic.Int64
		r.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "sscan" {
				scans.Add(1)
			}
			return nil
		}, nil)
		time.Sleep(5 * r.Timing().Interval)
		synctest.Wait()
		require.Zero(t, scans.Load())
		w.end(r)
	})
}
