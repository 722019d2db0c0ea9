package registry

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// outlive tries once to restore entries over an instance that may be dead.
func (o *owner) outlive(dead string, pairs ...any) reply {
	o.t.Helper()
	more, settings := o.overDead([]op{{dead: dead}})
	keys, args := o.owning(append(pairs, settings...)...)
	got, err := o.owned(healScript.Run(o.t.Context(), o.cfg.Client, append(keys, more...), args...))
	require.NoError(o.t, err)
	return got
}

// listens backdates the witness, as the leader's ticks would.
func (o *owner) listens(long time.Duration) {
	o.t.Helper()
	ctx := o.t.Context()
	w, err := guard.New(o.c, o.c, o.keys, o.Timing(), "leader").Tick(ctx)
	require.NoError(o.t, err)
	require.NoError(o.t, o.c.HSet(ctx, o.keys.Witness(), "since", w.Now.Add(-long).UnixMilli()).Err())
}

func (o *owner) reason() string { return o.c.HGet(o.t.Context(), o.keys.Witness(), "reason").Val() }

func TestAHealOverTheDeadAsksWhatTheGuardAsks(t *testing.T) {
	grace := guard.Timing{TTL: 90 * time.Second}.Grace()
	for name, run := range map[string]func(t *testing.T, o *owner){
		"and overwrites": func(t *testing.T, o *owner) {
			require.Equal(t, reply{size: 2, count: 2, foreign: map[string]string{"moved": "y"}, lost: o.lost()},
				o.outlive("x", "a", "x", "moved", "x", "gone", "x"))
			require.Equal(t, map[string]string{"a": "o", "gone": "o", "moved": "y"}, o.entries())
			require.ElementsMatch(t, []string{"a", "gone"}, o.indexed())
			o.lives()
		},
		"its heartbeat": func(t *testing.T, o *owner) {
			require.NoError(t, o.c.Set(t.Context(), o.keys.Heartbeat("x"), "1/1", time.Minute).Err())
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
		},
		"whether the witness has listened": func(t *testing.T, o *owner) {
			o.listens(grace - 10*time.Second)
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
		},
		"whether it has listened without a gap": func(t *testing.T, o *owner) {
			last := time.Now().Add(-o.Timing().Gap() - time.Minute).UnixMilli()
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Witness(), "last", last).Err())
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
			require.Equal(t, "gap", o.reason())
		},
		"whether the settings are those of the fleet": func(t *testing.T, o *owner) {
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Witness(), "grace", 200_000).Err())
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
			require.Equal(t, "settings", o.reason())
		},
		"whether the own heartbeat is there": func(t *testing.T, o *owner) {
			o.forgetHeartbeat()
			o.lastBeat = time.Now().Add(-o.cfg.HeartbeatTTL / 2)
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
			require.Equal(t, "gap", o.reason(), "its beats did not land: no wonder")
			o.lastBeat = time.Now()
			require.Equal(t, -1, o.outlive("x", "a", "x").count)
			require.Equal(t, "self_check", o.reason())
			require.NoError(t, o.beat(t.Context()))
			require.Equal(t, -1, o.outlive("x", "a", "x").count, "not before a grace period")
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				o := newOwner(t, w, "o")
				o.listens(grace)
				require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "a", "x", "moved", "y").Err())
				run(t, o)
				if name != "and overwrites" {
					require.Equal(t, map[string]string{"a": "x", "moved": "y"}, o.entries())
				}
			})
		})
	}
}

// A heal over a live instance does not listen: otherwise each dispute would restart the witness of
// a fleet without contenders.
func TestADisputeWithTheLivingDoesNotListen(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		o := newOwner(t, w, "o")
		require.NoError(t, o.c.Set(t.Context(), o.keys.Heartbeat("x"), "1/1", time.Minute).Err())
		require.Equal(t, -1, o.outlive("x", "a", "x").count)
		require.Zero(t, o.c.Exists(t.Context(), o.keys.Witness()).Val())
	})
}

// A value that a replica may not read holds everybody. An owner that may not read it does not
// listen.
func TestAnOwnerThatMayNotListenHoldsNobody(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	w := redistest.World{Options: srv.Options(), Client: srv.Client(), Real: true}
	for name, not := range map[string][]any{
		"counters": {"-info"}, "some counters": {"-info", "+info|stats", "+info|replication"},
	} {
		require.NoError(t, w.Client.FlushAll(t.Context()).Err())
		o := newOwner(t, w, "o")
		o.listens(o.Timing().Grace())
		before := o.c.HGetAll(t.Context(), o.keys.Witness()).Val()
		require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "a", "x").Err())
		rules := append([]any{"ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "&*", "+@all"}, not...)
		require.NoError(t, w.Client.Do(t.Context(), rules...).Err())
		options := *w.Options
		options.Username, options.Password = "poor", "p"
		poor := redis.NewClient(lease.Options(&options))
		o.cfg.Client = poor
		require.Equal(t, -1, o.outlive("x", "a", "x").count, name)
		require.Equal(t, before, o.c.HGetAll(t.Context(), o.keys.Witness()).Val(), name)
		o.cfg.Client = o.c
		require.Equal(t, 1, o.outlive("x", "a", "x").count, name)
		require.NoError(t, poor.Close())
	}
}

func (o *owner) lost() string { return o.c.HGet(o.t.Context(), o.keys.Witness(), "lost").Val() }
