package keyless_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestACommandWithoutAKeyGoesWhereTheKeyIs(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	ctx := t.Context()
	rdb := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
	defer rdb.Close()
	for _, key := range []string{"{a}", "{b}", "{c}"} {
		at, err := keyless.At(ctx, rdb, key)
		require.NoError(t, err)
		require.Equal(t, c.Owner(key).Addr(), at.(*redis.Client).Options().Addr)
	}
}

func TestOfOneServerItIsTheClientItself(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	at, err := keyless.At(t.Context(), rdb, "key")
	require.NoError(t, err)
	require.Same(t, rdb, at)
}

func TestAClusterThatNobodyReachesIsAnError(t *testing.T) {
	t.Parallel()
	o := lease.ClusterOptions(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	rdb := redis.NewClusterClient(o)
	defer rdb.Close()
	at, err := keyless.At(t.Context(), rdb, "key")
	require.Error(t, err)
	require.Nil(t, at)
}
