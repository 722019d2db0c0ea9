package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// go-redis resends a command to another node if the first did not answer in time, and calls that a
// redirect.
func TestOnAClusterNothingIsSentTwiceAndASlotThatMovedIsFound(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	ctx, look := t.Context(), c.Client()
	rdb := redis.NewClusterClient(ClusterOptions(c.Options()))
	defer rdb.Close()
	home := c.Owner("{a}")
	other := c.Nodes[0]
	if other == home {
		other = c.Nodes[1]
	}
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	add := func() error { return script.Run(ctx, rdb, []string{"{a}n"}).Err() }

	require.NoError(t, add())
	home.Stop()
	require.Error(t, add())
	home.Cont()
	c.AwaitOK()
	// A server that stalled for longer than the others waited refuses the commands in its buffer.
	n, err := look.Get(ctx, "{a}n").Int()
	require.NoError(t, err)
	require.LessOrEqual(t, n, 2, "what was asked before the stop was done once at most")

	finish := c.BeginMove("{a}", other)
	c.MoveKey("{a}n", other)
	require.ErrorContains(t, add(), "ASK", "it is on its way")
	require.Equal(t, fmt.Sprint(n), look.Get(ctx, "{a}n").Val())
	finish()
	for add() != nil { // MOVED, until the client has reloaded the slots
		require.NoError(t, ctx.Err())
	}
	require.Equal(t, fmt.Sprint(n+1), look.Get(ctx, "{a}n").Val())
}

func TestANodeThatHangsIsNotAskedForLongWhoHasWhichSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	o := c.Options()
	made := 0
	o.NewClient = func(node *redis.Options) *redis.Client {
		made++
		return redis.NewClient(node)
	}
	o = ClusterOptions(o)
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Hour, time.Hour, time.Hour // as for the load
	rdb := redis.NewClusterClient(o)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.Nodes[0].Stop()
	_, err := rdb.MasterForKey(ctx, "k")
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	require.Equal(t, 1, made, "by the user's own function")
	c.Nodes[0].Cont()
}
