package registry_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestTheCallerIsToldWhenEverythingIsBack(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, lose := range map[string]func(t *testing.T, w *bubble, r *replica){
		"after FLUSHALL": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.FlushAll(t.Context()).Err())
		},
		"after a hold in which entries may be lost": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.HSet(t.Context(), w.Witness(), "since", "7", "lost", "7", "reason", "gap").Err())
		},
		"after its own silence": func(t *testing.T, w *bubble, _ *replica) {
			w.Del(t.Context(), w.Heartbeat("r1"), w.Registry(), w.Devices("r1"))
		},
		"after one entry was lost": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei-7").Err())
		},
		"after calls that failed": func(_ *testing.T, _ *bubble, r *replica) {
			r.data.set(always, nil)
			r.control.set(always, nil)
			time.Sleep(40 * time.Second)
			r.data.set(nil, nil)
			r.control.set(nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				var told reconciled
				w.HSet(t.Context(), w.Witness(), "since", "1", "last", "1", "lost", "1", "reason", "gap")
				r := w.start("r1", told.hook(w, n))
				r.registerMany(t, n)
				time.Sleep(10 * time.Minute)
				require.Zero(t, told.calls.Load(), "nothing was lost")

				lose(t, w, r)
				time.Sleep(6 * time.Minute) // ten intervals find a single entry
				synctest.Wait()
				require.EqualValues(t, 1, told.calls.Load())
				require.Zero(t, told.early.Load())
				w.end(r)
			})
		})
	}
}

func TestTheCallerIsToldOnceAnIntervalAndAlwaysOfTheLast(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told reconciled
		r := w.start("r1", told.hook(w, 1))
		c := r.register(t, "imei")
		for range 60 {
			require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei").Err())
			touch(c)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		calls := told.calls.Load()
		require.GreaterOrEqual(t, calls, int64(3))
		require.LessOrEqual(t, calls, int64(8), "once an interval")
		require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei").Err())
		touch(c)
		time.Sleep(time.Minute)
		require.Equal(t, calls+1, told.calls.Load())
		w.end(r)
	})
}

// On a busy replica some write is always under way.
func TestTheCallerIsToldWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told atomic.Int64
		r := w.start("r1", func(c *registry.Config) { c.OnReconciled = func() { told.Add(1) } })
		r.registerMany(t, 10)
		r.data.set(func(redis.Cmder) error { time.Sleep(310 * time.Millisecond); return nil }, nil)
		require.NoError(t, w.FlushAll(t.Context()).Err())
		for i := range int(2 * r.Timing().Interval / (100 * time.Millisecond)) {
			c := r.Register(fmt.Sprint("passing-", i))
			time.Sleep(100 * time.Millisecond)
			c.Release()
		}
		require.EqualValues(t, 1, told.Load())
		r.data.set(nil, nil)
		w.end(r)
	})
}
