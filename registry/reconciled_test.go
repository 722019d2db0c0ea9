package registry_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// reconciled counts calls of Config.OnReconciled, each of which must find every entry in Redis.
type reconciled struct {
	calls atomic.Int64
	early atomic.Int64 // an entry was missing
}

func (c *reconciled) hook(w *bubble, entries int64) func(*registry.Config) {
	return func(cfg *registry.Config) {
		cfg.OnReconciled = func() {
			c.calls.Add(1)
			if w.HLen(context.Background(), w.Registry()).Val() != entries {
				c.early.Add(1)
			}
		}
	}
}

func TestWhatWasLostWholesaleIsBackWithinOneInterval(t *testing.T) {
	const n = 1200
	type row struct {
		lose   func(w *bubble, r *replica)
		told   int64
		single bool // single entries are back within ten intervals
	}
	eachBubble(t, map[string]row{
		"everything": {func(w *bubble, _ *replica) {
			require.NoError(w, w.FlushAll(w.Context()).Err())
		}, 1, false},
		"the registry": {func(w *bubble, _ *replica) { w.del(w.Registry()) }, 1, false},
		"and the heartbeat": {func(w *bubble, _ *replica) {
			w.del(w.Registry(), w.Heartbeat("r1"))
		}, 1, false},
		"and the index": {func(w *bubble, _ *replica) {
			w.del(w.Registry(), w.Heartbeat("r1"), w.Devices("r1"))
		}, 1, false},
		"and the witness": {func(w *bubble, _ *replica) { w.del(w.Registry(), w.Witness()) }, 1, false},
		"the index":       {func(w *bubble, _ *replica) { w.del(w.Devices("r1")) }, 0, false},
		"nothing, but a stray": {func(w *bubble, _ *replica) {
			w.SAdd(w.Context(), w.Devices("r1"), "stray")
		}, 0, false},
		"perhaps entries, before a hold": {func(w *bubble, _ *replica) {
			w.HSet(w.Context(), w.Witness(), "since", "7", "lost", "7", "reason", "gap")
		}, 1, false},
		"an entry": {func(w *bubble, _ *replica) { w.drop("imei-7") }, 1, true},
		"an entry, also in the index": {func(w *bubble, _ *replica) {
			w.drop("imei-7")
			w.SRem(w.Context(), w.Devices("r1"), "imei-7")
		}, 1, true},
		"answers": {func(_ *bubble, r *replica) {
			r.loses(always, nil)
			time.Sleep(40 * time.Second)
			r.loses(nil, nil)
		}, 1, false},
	}, func(w *bubble, c row) {
		var told reconciled
		w.HSet(w.Context(), w.Witness(), "since", "1", "last", "1", "lost", "1", "reason", "gap")
		r := w.start("r1", told.hook(w, n))
		r.registerMany(n)
		time.Sleep(10*time.Minute + time.Second) // between two beats
		require.Zero(w, told.calls.Load(), "nothing was lost")
		c.lose(w, r)
		pass(interval + 4*time.Second)
		require.EqualValues(w, n, w.SCard(w.Context(), w.Devices("r1")).Val())
		require.True(w, w.SIsMember(w.Context(), w.Roster(), "r1").Val())
		if c.single {
			pass(10 * interval)
		}
		require.Equal(w, n, w.are("r1"))
		pass(6 * time.Minute)
		require.Equal(w, c.told, told.calls.Load())
		require.Zero(w, told.early.Load())
	})
}

func TestTheCallerIsToldOnceAnIntervalAndAlwaysOfTheLast(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var told reconciled
		r := w.start("r1", told.hook(w, 1))
		c := r.register("imei")
		for range 60 {
			w.drop("imei")
			touch(c)
			time.Sleep(time.Second)
		}
		pass(time.Minute)
		calls := told.calls.Load()
		require.GreaterOrEqual(w, calls, int64(3))
		require.LessOrEqual(w, calls, int64(8), "once an interval")
		w.drop("imei")
		touch(c)
		time.Sleep(time.Minute)
		require.Equal(w, calls+1, told.calls.Load())
	})
}

// On a busy replica some write is always under way.
func TestTheCallerIsToldWhileOthersComeAndGo(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var told atomic.Int64
		r := w.start("r1", func(c *registry.Config) { c.OnReconciled = func() { told.Add(1) } })
		r.registerMany(10)
		r.data.set(func(redis.Cmder) error { time.Sleep(310 * time.Millisecond); return nil }, nil)
		require.NoError(w, w.FlushAll(w.Context()).Err())
		for i := range int(2 * interval / (100 * time.Millisecond)) {
			c := r.Register(fmt.Sprint("passing-", i))
			time.Sleep(100 * time.Millisecond)
			c.Release()
		}
		require.EqualValues(w, 1, told.Load())
		r.data.set(nil, nil)
	})
}
