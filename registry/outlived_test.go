package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// outlive tries once to restore entries over an instance that may be dead.
func (o *owner) outlive(dead string, ids ...any) reply {
	o.t.Helper()
	keys, args := o.owning(o.Newest(), append(ids, o.Timing().Gap().Milliseconds())...)
	keys = append(keys, o.heartbeats([]op{{dead: dead}, {dead: dead}})...)
	got, err := o.owned(time.Now(), healScript.Run(o.t.Context(), o.cfg.Client, keys, args...))
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

func TestAHealOverTheDeadDecidesByTheirRecords(t *testing.T) {
	const due = 38 * time.Second
	for name, c := range map[string]struct {
		listened time.Duration
		silent   time.Duration // beyond its TTL
		due      int64
		state    doubt.State
		change   func(o *owner)
		dead     bool
	}{
		"it is dead":                           {due, 0, 38_000, doubt.Holds, nil, true},
		"it held nothing":                      {due, 0, 38_000, doubt.Idle, nil, true},
		"Redis was heard for too short a time": {due - 20*time.Second, time.Hour, 38_000, doubt.Holds, nil, false},
		"it was silent for too short a time":   {time.Hour, -20 * time.Second, 38_000, doubt.Holds, nil, false},
		"it said goodbye":                      {due, -time.Minute, 38_000, doubt.Bye, nil, true},
		"others keep its record":               {time.Hour, time.Hour, 38_000, doubt.Plain, nil, false},
		"it has no record": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			o.c.HDel(o.t.Context(), o.keys.Beats(), "x")
		}, false},
		"it has a heartbeat": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			o.c.Set(o.t.Context(), o.keys.Heartbeat("x"), "1/1", time.Minute)
		}, false},
		"nobody ticked for too long": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			last := time.Now().Add(-o.Timing().Gap() - 10*time.Second).UnixMilli()
			o.c.HSet(o.t.Context(), o.keys.Witness(), "last", last)
		}, false},
		"nobody ever ticked": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			o.c.Del(o.t.Context(), o.keys.Witness())
		}, false},
		"clients were refused and the settings differ": {due, 0, 38_000, doubt.Holds, func(o *owner) {
			now := time.Now().UnixMilli()
			o.c.HSet(o.t.Context(), o.keys.Witness(), "refused_at", now, "grace", "0")
		}, true},
		"the own heartbeat was evicted": {due, 0, 38_000, doubt.Holds, func(o *owner) {
			o.c.Del(o.t.Context(), o.keys.Heartbeat("o"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				o := newOwner(t, w, "o")
				o.listens(c.listened)
				now := time.Now()
				x := doubt.Record{Last: now.Add(-c.silent - 90*time.Second).UnixMilli(), TTL: 90_000, Due: c.due, State: c.state}
				require.NoError(t, o.c.HSet(t.Context(), o.keys.Beats(), "x", x.String()).Err())
				require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "a", "x", "moved", "y").Err())
				if c.change == nil {
					require.Equal(t, c.dead, x.Takes(now.UnixMilli(), now.Add(-c.listened).UnixMilli()), "its twin agrees")
				} else {
					c.change(o)
				}
				got := o.outlive("x", "a", "moved", "gone")
				if !c.dead {
					require.Equal(t, -1, got.count)
					require.Equal(t, map[string]string{"a": "x", "moved": "y"}, o.entries())
					return
				}
				require.Equal(t, 2, got.count)
				require.Equal(t, map[string]string{"moved": "y"}, got.foreign)
				require.Equal(t, map[string]string{"a": "o", "gone": "o", "moved": "y"}, o.entries())
				require.ElementsMatch(t, []string{"a", "gone"}, o.indexed())
				o.lives()
			})
		})
	}
}

// Without contenders, those who wait for the dead listen: often enough, and no more.
func TestAHealOverTheDeadListensIfNobodyElseDoes(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		o, ctx := newOwner(t, w, "o"), t.Context()
		silent := doubt.Record{Last: 1, TTL: 90_000, Due: 38_000, State: doubt.Holds}
		require.NoError(t, o.c.HSet(ctx, o.keys.Beats(), "x", silent.String()).Err())
		says := func(field string) string { return o.c.HGet(ctx, o.keys.Witness(), field).Val() }
		require.Equal(t, -1, o.outlive("x", "a").count)
		require.Equal(t, "gap", says("reason"))
		require.NotEmpty(t, says("lost"))
		since := says("since")
		for age, renewed := range map[time.Duration]bool{o.Timing().Gap() * 3 / 4: true, o.Timing().Gap() / 4: false} {
			last := time.Now().Add(-age).UnixMilli()
			require.NoError(t, o.c.HSet(ctx, o.keys.Witness(), "since", 5, "last", last).Err())
			require.Equal(t, 1, o.outlive("x", fmt.Sprint(age)).count)
			require.Equal(t, renewed, says("last") != fmt.Sprint(last))
			require.Equal(t, "5", says("since"))
		}
		require.NotEqual(t, "5", since)
	})
}

// A heal over a live instance does not listen: otherwise each dispute would restart the witness of
// a fleet without contenders.
func TestADisputeWithTheLivingDoesNotListen(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		o := newOwner(t, w, "o")
		require.NoError(t, o.c.Set(t.Context(), o.keys.Heartbeat("x"), "1/1", time.Minute).Err())
		require.Equal(t, -1, o.outlive("x", "a").count)
		require.Zero(t, o.c.Exists(t.Context(), o.keys.Witness()).Val())
	})
}

// A rights list without INFO does not keep the dead's entries.
func TestAHealOverTheDeadNeedsNoRightToINFO(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	o, ctx := newOwner(t, redistest.World{Options: srv.Options(), Client: srv.Client(), Real: true}, "o"), t.Context()
	o.listens(time.Hour)
	silent := doubt.Record{Last: 1, TTL: 90_000, Due: 38_000, State: doubt.Holds}
	require.NoError(t, o.c.HSet(ctx, o.keys.Beats(), "x", silent.String()).Err())
	require.NoError(t, o.c.Do(ctx, "ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+@all", "-info").Err())
	options := *srv.Options()
	options.Username, options.Password = "poor", "p"
	poor := redis.NewClient(lease.Options(&options))
	defer poor.Close()
	o.cfg.Client = poor
	require.Equal(t, 1, o.outlive("x", "a").count)
}
