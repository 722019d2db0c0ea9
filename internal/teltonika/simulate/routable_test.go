package simulate

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestADeviceIsRoutableIfItsEntryNamesALivingInstance(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		keys := registry.Layout{Prefix: w.Prefix}
		g := serve(t, &gateway{})
		f, stop := fleetOn(t, Config{Devices: routablePage + 20, Targets: []string{g.addr}, FirstIMEI: 12_345, Interval: time.Hour, Ramp: time.Millisecond})
		count := func() int {
			n, err := f.Routable(t.Context(), w.Client, keys, 1)
			require.NoError(t, err)
			return n
		}
		await(t, func() bool { return f.Counts().Connected == routablePage+20 })
		require.Zero(t, count())
		for i := range f.trackers {
			owner := "lives"
			if i < 15 {
				owner = "dead"
			}
			if i >= 5 { // five have no entry
				require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), f.trackers[i].dev.IMEI(), owner).Err())
			}
		}
		// nobody of ours
		require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), "352093081452251", "lives").Err())
		require.Zero(t, count())
		require.NoError(t, w.Client.Set(t.Context(), keys.Heartbeat("lives"), "1", 0).Err())
		require.Equal(t, routablePage+5, count())
		closed := redis.NewClient(w.Options)
		require.NoError(t, closed.Close())
		_, err := f.Routable(t.Context(), closed, keys, 1)
		require.Error(t, err)
		stop()
		require.Zero(t, count(), "a device that is not connected does not count")
	})
}
