package registry_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestAGapIsMoreThanGAPAndTicksOfOneMillisecondAreNone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		guard := registry.NewGuard(w.Client, w.Client, w.Layout, gap, warm, "leader")
		tick := func() registry.Witness {
			t.Helper()
			got, err := guard.Tick(t.Context())
			require.NoError(t, err)
			return got
		}
		first := tick()
		require.Equal(t, first.Since, tick().Since, "in the same millisecond, right behind a hold")
		time.Sleep(gap)
		require.Equal(t, first.Since, tick().Since, "GAP itself is none")
		require.Equal(t, first.Since, tick().Since)
		time.Sleep(gap + time.Millisecond)
		require.NotEqual(t, first.Since, tick().Since)
	})
}

func TestADeviceThatRegistersAgainIsNoReasonToCompareTheIndex(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
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
		time.Sleep(5 * r.Interval())
		synctest.Wait()
		require.Zero(t, scans.Load())
		w.end(r)
	})
}
