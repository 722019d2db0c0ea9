package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestADeviceIsRoutableIfItsEntryNamesALivingInstance(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		keys := registry.Layout{Prefix: w.Prefix}
		imeis := make([]string, routablePage+20)
		for i := range imeis {
			imeis[i] = fmt.Sprint(350_000_000_000_000 + i)
		}
		count := func() int {
			n, err := routable(t.Context(), w.Client, keys, 1, slices.Values(imeis))
			require.NoError(t, err)
			return n
		}
		require.Zero(t, count())
		for i, imei := range imeis {
			owner := "lives"
			if i < 15 {
				owner = "dead"
			}
			if i >= 5 { // five have no entry
				require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), imei, owner).Err())
			}
		}
		// a foreign device
		require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), "352093081452251", "lives").Err())
		require.Zero(t, count())
		require.NoError(t, w.Client.Set(t.Context(), keys.Heartbeat("lives"), "1", 0).Err())
		require.Equal(t, routablePage+5, count())
		closed := redis.NewClient(w.Options)
		require.NoError(t, closed.Close())
		_, err := routable(t.Context(), closed, keys, 1, slices.Values(imeis))
		require.Error(t, err)
	})
}
