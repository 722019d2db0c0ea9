package registry_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// With 20 ms to Redis, 100,000 claims take at most two seconds more than the interval.
func TestManyAreBackWithinAnIntervalThoughRedisIsFar(t *testing.T) {
	inBubble(t, func(w *bubble) {
		ctx := w.Context()
		const interval = 3 * time.Second
		w.first = func(r *replica) {
			r.data.set(func(redis.Cmder) error { time.Sleep(20 * time.Millisecond); return nil }, nil)
		}
		w.pool = 20
		r := w.start("r1", func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = interval, 3*interval })
		r.registerMany(20_000)
		for name, lose := range map[string]func(){
			"everything":   func() { require.NoError(w, w.FlushAll(ctx).Err()) },
			"the registry": func() { w.del(w.Registry()) },
		} {
			time.Sleep(10 * interval)
			for was := r.Status().LastBeat; r.Status().LastBeat.Equal(was); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond) // what the beat checks has been checked
			w.listened()
			lose()
			time.Sleep(interval + 400*time.Millisecond)
			require.EqualValues(w, 20_000, w.HLen(ctx, w.Registry()).Val(), name)
		}
	})
}

func TestASingleLostEntryIsBackAtTheNextFrameOrWithinTenIntervals(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
			require.Zero(w, r.failures(op), "%s is there before its first failure", op)
		}
		r.registerMany(5)
		r.register("talking")
		talking := r.register("talking") // again, which is no reason to compare the index
		r.register("parked")
		r.data.set(failing("sscan"), nil)
		time.Sleep(2 * time.Second)
		w.drop("talking", "parked")
		talking.Touch()
		synctest.Wait()
		w.is("talking", "r1")
		w.is("parked", "")
		pass(10*interval + time.Second)
		w.is("parked", "r1")
		told := map[string]float64{}
		families, err := r.metrics.Gather()
		require.NoError(w, err)
		for _, f := range families {
			m := f.GetMetric()[0]
			told[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		require.EqualValues(w, 2, r.Status().Healed)
		require.InDelta(w, 2, told["teltonika_registry_healed_total"], 0)
		require.Equal(w, 7, r.Status().Held)
		require.InDelta(w, 7, told["teltonika_registry_held"], 0)
		require.Zero(w, r.failures("compare"))

		r.control.set(always, nil)
		time.Sleep(interval + time.Second) // the first to fail, and not at the instant of a try
		at := r.failures("heartbeat")
		time.Sleep(interval)
		require.InDelta(w, at+10, r.failures("heartbeat"), 0, "a beat that fails is tried again ten times an interval")
		r.loses(nil, nil)

		var failed atomic.Bool
		r.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" && failed.CompareAndSwap(false, true) {
				return errLost
			}
			return nil
		}, nil)
		talking.Release()
		time.Sleep(10 * time.Millisecond)
		r.Register("talking") // before the release is retried
		time.Sleep(5 * time.Minute)
		require.True(w, failed.Load())
		require.Empty(w, r.Status().Failing, "a failure that is over is not shown any more")
	})
}

func TestEachBeatLooksAtATenthInTheOrderOfRegistration(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		const many = 12_000
		var calls atomic.Int64
		r.data.set(func(redis.Cmder) error { calls.Add(1); return nil }, nil)
		claims := r.registerMany(many)
		require.Less(w, calls.Load(), int64(100), "a storm shares transactions")
		var mu sync.Mutex
		var checked []any
		unordered := 0
		r.data.set(func(cmd redis.Cmder) error {
			ids := checkedBy(cmd)
			mu.Lock()
			defer mu.Unlock()
			checked = append(checked, ids...)
			if !slices.IsSortedFunc(ids, func(a, b any) int { return number(a) - number(b) }) {
				unordered++
			}
			return nil
		}, nil)
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(checked)
		}
		looks := func(of int) {
			for beat := range 10 {
				before := count()
				pass(interval)
				require.InDelta(w, of/10, count()-before, many/40, "at beat %d", beat)
			}
			mu.Lock()
			defer mu.Unlock()
			once := map[any]bool{}
			for _, id := range checked {
				once[id] = true
			}
			require.Len(w, checked, of)
			require.Len(w, once, of, "each of them once")
			checked = nil
		}
		looks(many)
		require.Zero(w, unordered)
		for i := 0; i < many; i += 3 { // deletions leave no hole in the shards
			claims[i].Release()
		}
		looks(many * 2 / 3)
	})
}

func number(imei any) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(imei.(string), "imei-"))
	return n
}

func TestRedisAwayTheDeviceIsServedAndHealedLater(t *testing.T) {
	eachBubble(t, lost, func(w *bubble, broken [2]func(redis.Cmder) error) {
		ctx := w.Context()
		r := w.start("r1")
		gone, moved := r.register("gone"), r.register("moved")
		r.loses(broken[0], broken[1])
		c := r.Register("new")
		short, cancel := context.WithTimeout(ctx, time.Second)
		require.ErrorIs(w, c.Wait(short), context.DeadlineExceeded)
		cancel()
		gone.Release()
		moved.Release()
		time.Sleep(5 * time.Minute)
		require.Equal(w, 1.0, r.failures("register"), "it is counted once, however often it is tried again")
		require.Greater(w, r.failures("heal")+r.failures("check"), 10.0)
		require.Positive(w, r.failures("heartbeat"))
		require.Positive(w, r.failures("release"))
		require.NotEmpty(w, r.Status().Failing)
		w.write("moved", "r2")

		r.loses(nil, nil)
		require.NoError(w, c.Wait(ctx))
		require.Equal(w, 1.0, r.failures("register"))
		pass(interval)
		w.is("new", "r1")
		w.is("gone", "", "a release that Redis missed leaves nothing behind")
		w.is("moved", "r2")
		require.Empty(w, r.Status().Failing)
		c.Release()
	})
}

func TestADeviceThatComesBackWhileOthersAreWrittenIsNotReleased(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		back := r.register("back")
		var again *registry.Claim
		var missed bool
		// the batch is made: registrations run first, then releases
		r.data.set(func(cmd redis.Cmder) error {
			if again == nil {
				again = r.Register("back")
			}
			missed = missed || w.owner("back") != "r1"
			return nil
		}, nil)
		r.Register("other")
		back.Release()
		synctest.Wait()
		require.NotNil(w, again)
		require.NoError(w, again.Wait(w.Context()))
		require.False(w, missed, "it was open all the time")
		w.is("back", "r1")
		w.is("other", "r1")
	})
}

func TestADeviceThatMovedLeavesTheFormerOwnersIndex(t *testing.T) {
	inBubble(t, func(w *bubble) {
		former, next := w.start("r1"), w.start("r2")
		claim := former.register("moves")
		former.register("stays")
		former.data.set(failing("publish"), nil) // it asks nobody
		newer := next.register("moves")
		in := func(id string) bool {
			synctest.Wait()
			return w.SIsMember(w.Context(), w.Devices(id), "moves").Val()
		}
		time.Sleep(11 * interval)
		require.Equal(w, 1, former.Status().Disputed)
		require.False(w, in("r1"))
		require.True(w, in("r2"))
		require.True(w, w.SIsMember(w.Context(), w.Devices("r1"), "stays").Val())
		// A sweep of the silent owner took it out, too: no reason to scan for ever.
		w.SRem(w.Context(), w.Devices("r1"), "moves")
		former.data.set(func(cmd redis.Cmder) error { return errors.Join(failing("publish")(cmd), failing("sscan")(cmd)) }, nil)
		time.Sleep(20 * interval)
		require.LessOrEqual(w, former.failures("compare"), 0.0)

		newer.Release()
		time.Sleep(interval)
		w.is("moves", "r1")
		require.NoError(w, claim.Err())
		require.True(w, in("r1"))
		require.False(w, in("r2"))
	})
}
