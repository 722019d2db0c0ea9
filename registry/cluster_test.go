package registry

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// onCluster returns a registry on a Cluster of two masters, and the master without its keys.
func onCluster(t *testing.T) (c *redistest.Cluster, r *Registry, other *redistest.Server) {
	t.Helper()
	c = redistest.StartCluster(t, 2, 0)
	rdb := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	r, err := New(Config{
		Client: rdb, Control: rdb, Instance: "me", Layout: Layout{Prefix: "{rollcall}:"},
		HeartbeatInterval: 10 * time.Second, HeartbeatTTL: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	other = c.Nodes[0]
	if c.Owner(r.keys.Registry()) == other {
		other = c.Nodes[1]
	}
	return c, r, other
}

// The entry has moved, but not its owner's heartbeat: neither server knows whether the owner lives.
func TestALookUpWhileTheSlotMovesDoesNotSayThatTheOwnerIsDead(t *testing.T) {
	t.Parallel()
	c, r, other := onCluster(t)
	ctx, rdb := t.Context(), c.Client() // follows ASK
	require.NoError(t, rdb.HSet(ctx, r.keys.Registry(), "imei", "owner").Err())
	require.NoError(t, rdb.Set(ctx, r.keys.Heartbeat("owner"), "1", time.Minute).Err())
	o, err := r.Lookup(ctx, "imei")
	require.NoError(t, err)
	require.Equal(t, Owner{"owner", true}, o)

	finish := c.BeginMove(r.keys.Registry(), other)
	c.MoveKey(r.keys.Registry(), other)
	safe := r.cfg.Client
	_, err = r.Lookup(ctx, "imei")
	require.ErrorContains(t, err, "ASK")
	r.cfg.Client = rdb
	_, err = r.Lookup(ctx, "imei")
	require.ErrorContains(t, err, "TRYAGAIN")
	r.cfg.Client = safe
	finish()

	require.Eventually(t, func() bool {
		o, err = r.Lookup(ctx, "imei")
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, Owner{"owner", true}, o)
	_, err = r.Lookup(ctx, "none")
	require.ErrorIs(t, err, ErrNotRegistered)
}

func TestOnAClusterADeviceThatIsHeldHereTakesOneRoundTripAndAnotherOwnerIsAskedWhereItListens(t *testing.T) {
	t.Parallel()
	c, r, _ := onCluster(t)
	ctx, rdb := t.Context(), c.Client()
	require.NoError(t, rdb.HSet(ctx, r.keys.Registry(), "here", "me", "there", "owner").Err())
	r.Register("here", Socket{Close: rdb.Close})
	asked := 0
	r.cfg.Client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder,
		send func() error) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			asked++
		}
		return send()
	}))
	for imei, want := range map[string]int{"here": 1, "there": 2} {
		_, err := r.Lookup(ctx, imei) // loads the scripts
		require.NoError(t, err)
		asked = 0
		o, err := r.Lookup(ctx, imei)
		require.NoError(t, err)
		require.False(t, o.Live)
		require.Equal(t, want, asked, imei)
	}

	require.NoError(t, c.Client().Set(ctx, r.keys.Heartbeat("r2"), "1", time.Minute).Err())
	for _, at := range c.Nodes { // a client has one connection for all its channels
		listens := at.Client().Subscribe(ctx, r.keys.Heartbeat("r2"))
		_, err := listens.Receive(ctx)
		require.NoError(t, err)
		left, err := r.message(ctx, "r2", "x")
		require.NoError(t, err)
		require.Positive(t, left)
		for said := ""; said != "/me x"; { // earlier messages may be late
			message, err := listens.ReceiveMessage(ctx)
			require.NoError(t, err)
			said = message.Payload
		}
		require.NoError(t, listens.Close())
	}
}
