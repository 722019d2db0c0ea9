package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// inBubbles runs f in two bubbles, one after the other: what the first leaves in
// package variables (timers in pools, resolver goroutines) kills the second.
func inBubbles(t *testing.T, f func(t *testing.T, c *redis.Client)) {
	t.Helper()
	for i := range 2 {
		t.Run(fmt.Sprintf("bubble %d", i+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redis.NewClient(redistest.Fake(t))
				defer c.Close()
				f(t, c)
			})
		})
	}
}

func TestFakeExpiresKeysByTheBubblesClock(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		require.NoError(t, c.Set(ctx, "k", "v", 24*time.Hour).Err())
		time.Sleep(23 * time.Hour)
		require.Equal(t, time.Hour, c.TTL(ctx, "k").Val())
		time.Sleep(time.Hour)
		require.Zero(t, c.Exists(ctx, "k").Val())
		require.Equal(t, time.Now().Unix(), c.Time(ctx).Val().Unix())
	})
}

func TestFakeRunsScriptsAndTransactions(t *testing.T) {
	t.Parallel()
	script := redis.NewScript(`redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return redis.call('TIME')[1]`)
	inBubbles(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		now, err := script.Run(ctx, c, []string{"k"}, "v", 1500).Int64()
		require.NoError(t, err)
		require.Equal(t, time.Now().Unix(), now)
		time.Sleep(1600 * time.Millisecond)
		require.ErrorIs(t, c.Get(ctx, "k").Err(), redis.Nil)

		_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, "h", "f", "v")
			return p.HDel(ctx, "h", "f").Err()
		})
		require.NoError(t, err)
	})
}

// A bare net.Pipe has no buffer, and any pipeline above the server's 4 KiB of
// read buffer would end in a write timeout.
func TestFakeTakesPipelinesLargerThanAnyBuffer(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, c *redis.Client) {
		start := time.Now()
		_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 5000 {
				p.HSet(t.Context(), "h", i, strings.Repeat("v", 100))
			}
			p.HGetAll(t.Context(), "h")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, int64(5000), c.HLen(t.Context(), "h").Val())
		require.Zero(t, time.Since(start))
	})
}
