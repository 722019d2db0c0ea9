package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeysExpireInRealTime(t *testing.T) {
	t.Parallel()
	s, err := Start()
	require.NoError(t, err)
	defer s.Close()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	require.NoError(t, rdb.Set(ctx, "short", 1, 50*time.Millisecond).Err())
	require.NoError(t, rdb.Set(ctx, "long", 1, time.Hour).Err())
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "short").Val() == 0 }, 5*time.Second, 5*time.Millisecond)
	require.Less(t, rdb.PTTL(ctx, "long").Val(), time.Hour)
	require.Greater(t, rdb.PTTL(ctx, "long").Val(), 59*time.Minute)
}

func TestSeveralServersStandSideBySide(t *testing.T) {
	t.Parallel()
	a, err := Start()
	require.NoError(t, err)
	defer a.Close()
	b, err := Start()
	require.NoError(t, err)
	defer b.Close()
	require.NotEqual(t, a.Addr(), b.Addr())
}
