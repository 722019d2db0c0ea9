package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIndexOfAnotherTypeKeepsNoFormerLifeFromBeingHandedBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		require.NoError(t, w.HSet(ctx, w.Registry(), "left-over", "r1").Err())
		require.NoError(t, w.Set(ctx, w.Devices("r1"), "x", 0).Err())
		r := w.start("r1")
		<-r.Started()
		time.Sleep(r.Timing().Interval)
		synctest.Wait()
		require.Empty(t, w.owner("left-over"))
		require.Contains(t, r.Status().Failing["compare"], "WRONGTYPE", "and it is told")
		before := r.failures("compare")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.InDelta(t, float64(time.Hour/r.Timing().Interval), r.failures("compare")-before, 10, "once an interval")
		require.NoError(t, w.Del(ctx, w.Devices("r1")).Err())
		time.Sleep(2 * r.Timing().Interval)
		synctest.Wait()
		require.Empty(t, r.Status().Failing)
	})
}
