package registry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIndexOfAnotherTypeKeepsNoFormerLifeFromBeingHandedBack(t *testing.T) {
	inBubble(t, func(w *bubble) {
		ctx := w.Context()
		w.write("left-over", "r1")
		require.NoError(w, w.Set(ctx, w.Devices("r1"), "x", 0).Err())
		r := w.start("r1")
		<-r.Started()
		pass(interval)
		w.is("left-over", "")
		require.Contains(w, r.Status().Failing["compare"], "WRONGTYPE", "and it is told")
		before := r.failures("compare")
		pass(time.Hour)
		require.InDelta(w, float64(time.Hour/interval), r.failures("compare")-before, 10, "once an interval")
		require.NoError(w, w.Del(ctx, w.Devices("r1")).Err())
		pass(2 * interval)
		require.Empty(w, r.Status().Failing)
	})
}
