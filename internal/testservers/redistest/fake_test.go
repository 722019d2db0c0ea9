package redistest_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
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

func TestFakeCarriesRedsync(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, c *redis.Client) {
		rs := redsync.New(goredis.NewPool(c))
		first := rs.NewMutex("lease", redsync.WithExpiry(15*time.Second), redsync.WithTries(1))
		second := rs.NewMutex("lease", redsync.WithExpiry(15*time.Second), redsync.WithTries(1))
		require.NoError(t, first.TryLockContext(t.Context()))
		for range 200 { // a quarter of an hour of renewals
			time.Sleep(5 * time.Second)
			ok, err := first.ExtendContext(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.Error(t, second.TryLockContext(t.Context()))
		time.Sleep(16 * time.Second)
		require.NoError(t, second.TryLockContext(t.Context()))
	})
}

func TestFakePublishesAndTimesOutBlockingReads(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		sub := c.Subscribe(ctx, "news")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.Publish(ctx, "news", "released").Err())
		msg, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "released", msg.Payload)

		start := time.Now()
		require.ErrorIs(t, c.BLPop(ctx, 3*time.Second, "nothing").Err(), redis.Nil)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestFakesDialerIsThereToBeWrapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = time.Second, -1, true
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return deaf{conn}, err
		}
		c := redis.NewClient(o)
		defer c.Close()
		start := time.Now()
		require.ErrorContains(t, c.Ping(t.Context()).Err(), "timeout")
		require.Less(t, time.Since(start), time.Minute)
	})
}

// deaf is a line whose replies are lost.
type deaf struct{ net.Conn }

func (d deaf) Read(b []byte) (int, error) {
	for {
		if _, err := d.Conn.Read(b); err != nil {
			return 0, err
		}
	}
}
