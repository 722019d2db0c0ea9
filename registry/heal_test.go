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

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestWhatWasLostWholesaleIsBackWithinOneInterval(t *testing.T) {
	lose := map[string]func(ctx context.Context, w *bubble) error{
		"the heartbeat":             func(ctx context.Context, w *bubble) error { return w.Del(ctx, w.Heartbeat("r1"), w.Registry()).Err() },
		"everything":                func(ctx context.Context, w *bubble) error { return w.FlushAll(ctx).Err() },
		"the registry":              func(ctx context.Context, w *bubble) error { return w.Del(ctx, w.Registry()).Err() },
		"the index":                 func(ctx context.Context, w *bubble) error { return w.Del(ctx, w.Devices("r1")).Err() },
		"entries, with the witness": func(ctx context.Context, w *bubble) error { return w.Del(ctx, w.Registry(), w.Witness()).Err() },
		"entries and index, partly": func(ctx context.Context, w *bubble) error {
			w.HDel(ctx, w.Registry(), "imei-7")
			return w.SRem(ctx, w.Devices("r1"), "imei-7").Err()
		},
		"the index of another boot ": func(ctx context.Context, w *bubble) error { return w.SAdd(ctx, w.Devices("r1"), "stray").Err() },
	}
	for name, lost := range lose {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				w.HSet(ctx, w.Witness(), "lost", "1")
				r := w.start("r1")
				r.registerMany(t, 1200)
				require.NoError(t, lost(ctx, w))
				time.Sleep(r.Timing().Interval + 4*time.Second)
				synctest.Wait()
				entries := w.HGetAll(ctx, w.Registry()).Val()
				if name != "entries and index, partly" { // single entries: within ten intervals
					require.Len(t, entries, 1200)
				}
				for imei, owner := range entries {
					require.Equal(t, "r1", owner, imei)
				}
				require.EqualValues(t, 1200, w.SCard(ctx, w.Devices("r1")).Val())
				require.True(t, w.SIsMember(ctx, w.Roster(), "r1").Val())
				w.end(r)
			})
		})
	}
}

// With 20 ms to Redis, 100,000 claims take at most two seconds more than the interval.
func TestManyAreBackWithinAnIntervalThoughRedisIsFar(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		var far faults
		far.set(func(redis.Cmder) error { time.Sleep(20 * time.Millisecond); return nil }, nil)
		r := w.start("r1", func(c *registry.Config) {
			o := *lease.Options(w.options)
			o.PoolSize = 20
			data := redis.NewClient(&o)
			data.AddHook(redistest.Intercept(far.meets))
			w.t.Cleanup(func() { require.NoError(t, data.Close()) })
			c.Client, c.HeartbeatInterval, c.HeartbeatTTL = data, 3*time.Second, 9*time.Second
		})
		r.registerMany(t, 20_000)
		for name, lose := range map[string]func(){
			"everything":   func() { require.NoError(t, w.FlushAll(ctx).Err()) },
			"the registry": func() { require.NoError(t, w.Del(ctx, w.Registry()).Err()) },
		} {
			time.Sleep(10 * r.Timing().Interval)
			for was := r.Status().LastBeat; r.Status().LastBeat.Equal(was); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond) // what the beat checks has been checked
			w.listened()
			lose()
			time.Sleep(r.Timing().Interval + 400*time.Millisecond)
			require.EqualValues(t, 20_000, w.HLen(ctx, w.Registry()).Val(), name)
		}
		w.end(r)
	})
}

func TestABeatThatFailsIsTriedAgainTenTimesAnInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		time.Sleep(r.Timing().Interval + time.Second)
		r.control.set(always, nil)
		time.Sleep(r.Timing().Interval) // the first to fail
		at := r.failures("heartbeat")
		time.Sleep(r.Timing().Interval)
		require.InDelta(t, at+10, r.failures("heartbeat"), 0)
		r.control.set(nil, nil)
		w.end(r)
	})
}

func TestASingleLostEntryIsBackAtTheNextFrameOrWithinTenIntervals(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		r := w.start("r1")
		talking := r.register(t, "talking")
		r.register(t, "parked")
		time.Sleep(2 * time.Second)
		w.HDel(ctx, w.Registry(), "talking", "parked")
		talking.Touch()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("talking"))
		require.Empty(t, w.owner("parked"))
		time.Sleep(10*r.Timing().Interval + time.Second)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("parked"))
		require.EqualValues(t, 2, r.Status().Healed)
		w.end(r)
	})
}

func TestEachBeatLooksAtATenthInTheOrderOfRegistration(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		const many = 12_000
		claims := r.registerMany(t, many)
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
				time.Sleep(r.Timing().Interval)
				synctest.Wait()
				require.InDelta(t, of/10, count()-before, many/40, "at beat %d", beat)
			}
			mu.Lock()
			defer mu.Unlock()
			once := map[any]bool{}
			for _, id := range checked {
				once[id] = true
			}
			require.Len(t, checked, of)
			require.Len(t, once, of, "each of them once")
			checked = nil
		}
		looks(many)
		require.Zero(t, unordered)
		for i := 0; i < many; i += 3 { // deletions leave no hole in the shards
			claims[i].Release()
		}
		looks(many * 2 / 3)
		w.end(r)
	})
}

func number(imei any) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(imei.(string), "imei-"))
	return n
}

func TestRedisAwayTheDeviceIsServedAndHealedLater(t *testing.T) {
	faultKinds := map[string]func(*faults){
		"the request is lost": func(f *faults) { f.set(always, nil) },
		"the reply is lost":   func(f *faults) { f.set(nil, always) },
	}
	for name, broken := range faultKinds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				r := w.start("r1")
				gone, moved := r.register(t, "gone"), r.register(t, "moved")
				broken(&r.data)
				broken(&r.control)
				c := r.Register("new")
				short, cancel := context.WithTimeout(ctx, time.Second)
				require.ErrorIs(t, c.Wait(short), context.DeadlineExceeded)
				cancel()
				gone.Release()
				moved.Release()
				time.Sleep(5 * time.Minute)
				require.Positive(t, r.failures("register"))
				require.Positive(t, r.failures("heartbeat"))
				require.Positive(t, r.failures("release"))
				require.NotEmpty(t, r.Status().Failing)
				w.HSet(ctx, w.Registry(), "moved", "r2")

				r.data.set(nil, nil)
				r.control.set(nil, nil)
				require.NoError(t, c.Wait(ctx))
				time.Sleep(r.Timing().Interval)
				synctest.Wait()
				require.Equal(t, "r1", w.owner("new"))
				require.Empty(t, w.owner("gone"), "a release that Redis missed leaves nothing behind")
				require.Equal(t, "r2", w.owner("moved"))
				require.Empty(t, r.Status().Failing)
				c.Release()
				w.end(r)
			})
		})
	}
}

func TestARegistrationThatLandsAfterItsSocketClosedIsHandedBack(t *testing.T) {
	for name, index := range map[string]bool{"with the index": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = index })
				r.data.set(always, nil)
				c := r.Register("imei")
				time.Sleep(100 * time.Millisecond)
				c.Release()
				r.data.set(nil, nil)
				time.Sleep(30 * time.Second) // the release has landed

				w.HSet(ctx, w.Registry(), "imei", "r1") // and now the registration does
				if !index {
					w.SAdd(ctx, w.Devices("r1"), "imei")
				}
				time.Sleep(r.Timing().Interval + time.Second)
				synctest.Wait()
				require.Empty(t, w.owner("imei"))
				w.end(r)
				require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val())
			})
		})
	}
}

func TestARegistrationThatWaitedTooLongOverwritesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		r := w.start("r1")
		r.data.set(always, nil)
		c := r.Register("imei")
		time.Sleep(10 * time.Second)
		w.HSet(ctx, w.Registry(), "imei", "r2") // meanwhile the device moved
		w.Set(ctx, w.Heartbeat("r2"), "1/1", 0)
		r.data.set(nil, nil)
		time.Sleep(10 * r.Timing().Interval)
		require.Equal(t, "r2", w.owner("imei"))
		c.Release()
		w.end(r)
		require.Equal(t, "r2", w.owner("imei"))
	})
}

func TestADeviceThatIsNotRegisteredAtTheFirstTryIsCountedOnceHoweverOftenItIsTriedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.data.set(func(redis.Cmder) error { time.Sleep(2 * time.Second); return errLost }, nil)
		r.Register("tried and failed")
		time.Sleep(100 * time.Millisecond)
		r.Register("waited too long")
		r.Register("waited too long too")
		time.Sleep(5 * time.Minute)
		require.Equal(t, 3.0, r.failures("register"))
		require.Greater(t, r.failures("heal")+r.failures("check"), 10.0)
		r.data.set(nil, nil)
		time.Sleep(r.Timing().Interval)
		require.Equal(t, 3.0, r.failures("register"))
		require.EqualValues(t, 3, r.Status().Healed)
		w.end(r)
	})
}

func TestAStormSharesTransactions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		var calls atomic.Int64
		r.data.set(func(redis.Cmder) error { calls.Add(1); return nil }, nil)
		claims := r.registerMany(t, 5000)
		require.Less(t, calls.Load(), int64(60))
		for _, c := range claims {
			c.Release()
		}
		w.end(r)
		require.Equal(t, []string{w.Beats()}, w.Keys(t.Context(), "*").Val())
	})
}

func TestADeviceThatComesBackWhileOthersAreWrittenIsNotReleased(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		back := r.register(t, "back")
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
		require.NotNil(t, again)
		require.NoError(t, again.Wait(t.Context()))
		require.False(t, missed, "it was open all the time")
		require.Equal(t, "r1", w.owner("back"))
		require.Equal(t, "r1", w.owner("other"))
	})
}

func TestAFailureThatIsOverIsNotShownAnyMore(t *testing.T) {
	for name, failing := range map[string]string{"a scan": "sscan", "a release": "evalsha"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("r1")
				c := r.register(t, "imei")
				var failed atomic.Bool
				r.data.set(func(cmd redis.Cmder) error {
					if cmd.Name() == failing && failed.CompareAndSwap(false, true) {
						return errLost
					}
					return nil
				}, nil)
				c.Release()
				time.Sleep(10 * time.Millisecond)
				r.Register("imei") // before the release is retried
				w.SAdd(t.Context(), w.Devices("r1"), "stray")
				time.Sleep(5 * time.Minute)
				require.True(t, failed.Load())
				require.Empty(t, r.Status().Failing)
				w.end(r)
			})
		})
	}
}

func TestADeviceThatMovedLeavesTheFormerOwnersIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		former, next := w.start("r1"), w.start("r2")
		claim := former.register(t, "moves")
		former.register(t, "stays")
		former.data.set(failing("publish"), nil) // it asks nobody
		newer := next.register(t, "moves")
		in := func(id string) bool {
			synctest.Wait()
			return w.SIsMember(t.Context(), w.Devices(id), "moves").Val()
		}
		time.Sleep(11 * former.Timing().Interval)
		require.Equal(t, 1, former.Status().Disputed)
		require.False(t, in("r1"))
		require.True(t, in("r2"))
		require.True(t, w.SIsMember(t.Context(), w.Devices("r1"), "stays").Val())
		// A sweep of the silent owner took it out, too: no reason to scan for ever.
		w.SRem(t.Context(), w.Devices("r1"), "moves")
		former.data.set(func(cmd redis.Cmder) error { return errors.Join(failing("publish")(cmd), failing("sscan")(cmd)) }, nil)
		time.Sleep(20 * former.Timing().Interval)
		require.LessOrEqual(t, former.failures("compare"), 0.0)

		newer.Release()
		time.Sleep(former.Timing().Interval)
		require.Equal(t, "r1", w.owner("moves"))
		require.NoError(t, claim.Err())
		require.True(t, in("r1"))
		require.False(t, in("r2"))
		w.end(former)
		w.end(next)
	})
}

func TestADeviceThatRegistersAgainIsNoReasonToCompareTheIndex(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.register(t, "imei")
		r.register(t, "imei")
		synctest.Wait()
		r.data.set(failing("sscan"), nil)
		time.Sleep(5 * r.Timing().Interval)
		synctest.Wait()
		require.LessOrEqual(t, r.failures("compare"), 0.0)
		w.end(r)
	})
}
