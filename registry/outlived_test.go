package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// outlive tries once to restore entries over an instance that may be dead.
func (o *owner) outlive(dead string, ids ...any) reply {
	o.Helper()
	keys, args := o.owning(o.Newest(), append(ids, o.Timing().Gap().Milliseconds())...)
	keys = append(keys, o.heartbeats([]op{{dead: dead}, {dead: dead}})...)
	got, err := o.owned(time.Now(), healScript.Run(o.Context(), o.cfg.Client, keys, args...))
	require.NoError(o, err)
	return got
}

// listens backdates the witness, as the leader's ticks would.
func (o *owner) listens(long time.Duration) {
	o.Helper()
	ctx := o.Context()
	w, err := guard.New(o.c, o.c, o.keys, o.Timing(), "leader").Tick(ctx)
	require.NoError(o, err)
	o.do("HSET", o.keys.Witness(), "since", w.Now.Add(-long).UnixMilli())
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
			o.c.HDel(o.Context(), o.keys.Beats(), "x")
		}, false},
		"it has a heartbeat": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			o.c.Set(o.Context(), o.keys.Heartbeat("x"), "1/1", time.Minute)
		}, false},
		"nobody ticked for too long": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			last := time.Now().Add(-o.Timing().Gap() - 10*time.Second).UnixMilli()
			o.c.HSet(o.Context(), o.keys.Witness(), "last", last)
		}, false},
		"nobody ever ticked": {time.Hour, time.Hour, 38_000, doubt.Holds, func(o *owner) {
			o.c.Del(o.Context(), o.keys.Witness())
		}, false},
		"clients were refused and the settings differ": {due, 0, 38_000, doubt.Holds, func(o *owner) {
			now := time.Now().UnixMilli()
			o.c.HSet(o.Context(), o.keys.Witness(), "refused_at", now, "grace", "0")
		}, true},
		"the user may not run INFO": {due, 0, 38_000, doubt.Holds, func(o *owner) {
			if o.w.Real {
				o.cfg.Client = o.poor("-info")
			}
		}, true},
		"the own heartbeat was evicted": {due, 0, 38_000, doubt.Holds, func(o *owner) {
			o.c.Del(o.Context(), o.keys.Heartbeat("o"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			owners(t, func(o *owner) {
				o.listens(c.listened)
				now := time.Now()
				x := doubt.Record{Last: now.Add(-c.silent - 90*time.Second).UnixMilli(), TTL: 90_000, Due: c.due, State: c.state}
				o.do("HSET", o.keys.Beats(), "x", x.String())
				o.do("HSET", o.keys.Registry(), "a", "x", "moved", "y")
				if c.change == nil {
					require.Equal(o, c.dead, x.Takes(now.UnixMilli(), now.Add(-c.listened).UnixMilli()), "its twin agrees")
				} else {
					c.change(o)
				}
				got := o.outlive("x", "a", "moved", "gone")
				if !c.dead {
					require.Equal(o, -1, got.count)
					require.Equal(o, map[string]string{"a": "x", "moved": "y"}, o.entries())
					return
				}
				require.Equal(o, 2, got.count)
				require.Equal(o, map[string]string{"moved": "y"}, got.foreign)
				require.Equal(o, map[string]string{"a": "o", "gone": "o", "moved": "y"}, o.entries())
				require.ElementsMatch(o, []string{"a", "gone"}, o.indexed())
				o.lives()
			})
		})
	}
}

// Without contenders, those who wait for the dead listen: often enough, and no more.
func TestAHealOverTheDeadListensIfNobodyElseDoes(t *testing.T) {
	owners(t, func(o *owner) {
		ctx := o.Context()
		// Over a live instance it does not: each dispute would restart the witness.
		o.do("SET", o.keys.Heartbeat("x"), "1/1", "EX", 60)
		require.Equal(o, -1, o.outlive("x", "a").count)
		require.Zero(o, o.c.Exists(ctx, o.keys.Witness()).Val())
		o.do("DEL", o.keys.Heartbeat("x"))
		silent := doubt.Record{Last: 1, TTL: 90_000, Due: 38_000, State: doubt.Holds}
		o.do("HSET", o.keys.Beats(), "x", silent.String())
		says := func(field string) string { return o.c.HGet(ctx, o.keys.Witness(), field).Val() }
		require.Equal(o, -1, o.outlive("x", "a").count)
		require.Equal(o, "gap", says("reason"))
		require.NotEmpty(o, says("lost"))
		since := says("since")
		for age, renewed := range map[time.Duration]bool{o.Timing().Gap() * 3 / 4: true, o.Timing().Gap() / 4: false} {
			last := time.Now().Add(-age).UnixMilli()
			o.do("HSET", o.keys.Witness(), "since", 5, "last", last)
			require.Equal(o, 1, o.outlive("x", fmt.Sprint(age)).count)
			require.Equal(o, renewed, says("last") != fmt.Sprint(last))
			require.Equal(o, "5", says("since"))
		}
		require.NotEqual(o, "5", since)
	})
}
