package guard_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// The heartbeat has moved but the witness has not. The owner's beats, with keys on both servers,
// are refused; if ticks were answered, its silence would look like death once the move is over.
func TestNobodyListensWhileTheSlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	ctx, layout := t.Context(), guard.Layout{Prefix: "{rollcall}:"}
	rdb := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
	defer rdb.Close()
	timing := guard.Timing{Interval: 10 * time.Second, TTL: time.Minute}
	g := guard.New(rdb, rdb, layout, timing, "leader")
	_, err := g.Tick(ctx)
	require.NoError(t, err)
	require.NoError(t, rdb.SAdd(ctx, layout.Roster(), "leader").Err())
	require.NoError(t, rdb.Set(ctx, layout.Heartbeat("leader"), "x", time.Minute).Err())
	to := c.Nodes[0]
	if c.Owner(layout.Witness()) == to {
		to = c.Nodes[1]
	}

	finish := c.BeginMove(layout.Witness(), to)
	c.MoveKey(layout.Heartbeat("leader"), to)
	_, err = g.Tick(ctx)
	require.ErrorContains(t, err, "TRYAGAIN")
	finish()

	var w guard.Witness
	require.Eventually(t, func() bool {
		w, err = g.Tick(ctx)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "restarted", w.Reason, "another server may have lost what was on its way")
}

func TestOnlyAPrefixWithAHashTagIsOneSlot(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]bool{
		"": false, "rollcall:": false, "{}:": false, "{a:": false, "a}:": false, "}{:": false, "{}{a}:": false,
		"{a}:": true, "x{a}:": true, "}{a}:": true,
	} {
		require.Equal(t, want, guard.Layout{Prefix: prefix}.OneSlot(), prefix)
	}
}
