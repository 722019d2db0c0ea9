package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

func TestForWaitsUnlessTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.True(t, wait.For(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, wait.For(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(begun))
	})
}

func TestABackoffDoublesUpToItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := wait.Between(time.Second, 5*time.Second)
		waits := func(want ...time.Duration) {
			for _, d := range want {
				begun := time.Now()
				require.True(t, pause.Wait(t.Context()))
				require.Equal(t, d, time.Since(begun))
			}
		}
		waits(time.Second, 2*time.Second, 4*time.Second, 5*time.Second, 5*time.Second)
		pause.Reset()
		waits(time.Second, 2*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, pause.Wait(ctx))
	})
}
