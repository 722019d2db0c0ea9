package connect

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestClientsOfBothKindsAreSafeForWrites(t *testing.T) {
	t.Parallel()
	options := func(url string) *redis.Options {
		c := clientsOf(t, url)
		for _, client := range []redis.UniversalClient{c.Data, c.Control, c.Blocking} {
			o := client.(*redis.Client).Options()
			require.Zero(t, o.MaxRetries) // none, after NewClient has read it
			require.True(t, o.ContextTimeoutEnabled)
			require.Equal(t, 1, o.DialerRetries)
		}
		require.Equal(t, blockingPool, c.Blocking.(*redis.Client).Options().PoolSize)
		require.LessOrEqual(t, c.Control.(*redis.Client).Options().ReadTimeout, time.Second)
		return c.Data.(*redis.Client).Options()
	}
	single := options("rediss://user:pw@host:6390/3?read_timeout=4s&max_retries=5")
	require.Equal(t, 4*time.Second, single.ReadTimeout)
	require.Equal(t, 10*time.Second, single.WriteTimeout)
	require.NotNil(t, single.TLSConfig)

	sentinel := options("redis://a:1?master_name=m&addr=b:2&write_timeout=4s&max_retries=5")
	require.Equal(t, 4*time.Second, sentinel.WriteTimeout)
	require.Equal(t, 10*time.Second, sentinel.ReadTimeout)
	require.Equal(t, 3*time.Second, sentinel.DialTimeout)
	var target Redis
	require.NoError(t, target.Parse("redis://a:1?master_name=m&addr=b:2"))
	require.Equal(t, []string{"a:1", "b:2"}, target.Sentinel.SentinelAddrs)

	require.NoError(t, target.Parse("unix:///run/redis.sock?db=1"))
	require.Equal(t, "/run/redis.sock/1", target.String())
}

func TestKeysOfTheEmbeddedRedisExpireInRealTime(t *testing.T) {
	t.Parallel()
	a, b := clientsOf(t, EmbeddedRedis), clientsOf(t, EmbeddedRedis)
	require.NotEqual(t, a.Embedded, b.Embedded, "several stand side by side")

	ctx, rdb := t.Context(), a.Data
	require.NoError(t, rdb.Set(ctx, "short", 1, 50*time.Millisecond).Err())
	require.NoError(t, rdb.Set(ctx, "long", 1, time.Hour).Err())
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "short").Val() == 0 }, 5*time.Second, 5*time.Millisecond)
	require.Less(t, rdb.PTTL(ctx, "long").Val(), time.Hour)
	require.Greater(t, rdb.PTTL(ctx, "long").Val(), 59*time.Minute)
}

func TestTheTimeAtWhichAKeyOfTheEmbeddedRedisExpiresDoesNotChange(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), clientsOf(t, EmbeddedRedis).Data
	var asking conc.WaitGroup
	defer asking.Wait()
	for n := range 20 {
		key := strconv.Itoa(n)
		require.NoError(t, rdb.Set(ctx, key, 1, time.Hour).Err())
		expires := rdb.PExpireTime(ctx, key).Val()
		asking.Go(func() {
			for range 500 {
				if !assert.Equal(t, expires, rdb.PExpireTime(ctx, key).Val()) {
					return
				}
			}
		})
	}
}

func TestTheEmbeddedRedisClosesWhileItIsAsked(t *testing.T) {
	t.Parallel()
	for range 5 {
		c, err := Open(t.Context(), &Redis{embedded: true}, time.Second)
		require.NoError(t, err)
		var asking conc.WaitGroup
		for range 20 {
			other := redis.NewClient(&redis.Options{Addr: c.Embedded, MaxRetries: -1, DialerRetries: 1})
			require.NoError(t, other.Ping(t.Context()).Err())
			asking.Go(func() {
				for other.Info(context.Background()).Err() == nil {
				}
				_ = other.Close()
			})
		}
		require.NoError(t, c.Close())
		asking.Wait()
	}
}
