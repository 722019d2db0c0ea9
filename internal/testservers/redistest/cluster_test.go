package redistest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestEveryKeyOfAClusterIsServed(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := redistest.StartCluster(t, 3, 1)
	t.Log("up in", time.Since(began))
	rdb := c.Client()
	owners := map[*redistest.Server]bool{}
	for i := range 100 {
		key := fmt.Sprint("k", i)
		require.NoError(t, rdb.Set(t.Context(), key, i, 0).Err())
		owner := c.Owner(key)
		owners[owner] = true
		require.NoError(t, owner.Client().Get(t.Context(), key).Err(), "the owner itself has it")
	}
	require.Len(t, owners, 3)
	for _, n := range c.Nodes[:3] {
		require.True(t, owners[n], "masters stand first")
	}
	opt, err := redis.ParseClusterURL(c.URL())
	require.NoError(t, err)
	require.Len(t, opt.Addrs, 6)
}

func TestASlotMovesWithItsKeys(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	ctx, rdb := t.Context(), c.Client()
	require.NoError(t, rdb.MSet(ctx, "{a}1", "x", "{a}2", "y").Err())
	from := c.Owner("{a}")
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}

	finish := c.BeginMove("{a}", to)
	c.MoveKey("{a}1", to)
	require.ErrorContains(t, from.Client().Get(ctx, "{a}1").Err(), "ASK")
	require.Equal(t, "x", rdb.Get(ctx, "{a}1").Val())
	require.Equal(t, "y", from.Client().Get(ctx, "{a}2").Val())
	finish()

	require.Equal(t, to, c.Owner("{a}"))
	require.Equal(t, []any{"x", "y"}, to.Client().MGet(ctx, "{a}1", "{a}2").Val())
}

func TestAReplicaTakesOverFromADeadMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 1)
	ctx, rdb := t.Context(), c.Client()
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	require.NoError(t, c.Nodes[0].Client().Wait(ctx, 1, time.Minute).Err())
	c.Nodes[0].Kill()
	c.TakeOver(c.Nodes[1])
	c.AwaitOK()
	require.Equal(t, c.Nodes[1], c.Owner("k"))
	require.Equal(t, "v", c.Nodes[1].Client().Get(ctx, "k").Val())

	c.Nodes[0].Restart()
	c.AwaitOK()
	require.Equal(t, c.Nodes[1], c.Owner("k"), "it comes back as a replica")
}
