package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestEvidenceFromBeforeAnOutageTakesNothingBack(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		r1, r2 := w.start("r1", index), w.start("r2", index)
		c := r1.register(t, "imei")
		time.Sleep(2 * time.Second)
		w.HSet(t.Context(), w.Registry(), "imei", "r2") // a late write of r2
		frame(c)                                        // sees r2, and is acknowledged
		require.Equal(t, "r2", w.owner("imei"))
		r1.data.set(always, nil)
		r1.control.set(always, nil)
		c.FrameReceived() // would be proof, if it could be used
		time.Sleep(5 * time.Minute)
		r2.register(t, "imei") // long after it has really moved there
		time.Sleep(2 * time.Minute)
		r1.data.set(nil, nil)
		r1.control.set(nil, nil)
		time.Sleep(20 * time.Minute)
		require.Equal(t, "r2", w.owner("imei"))

		frame(c) // evidence again: a frame was acknowledged after the claim was seen again,
		c.FrameReceived()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		c.Release()
		w.end(r1)
		w.kill(r2)
	})
}
