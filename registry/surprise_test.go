package registry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func checks(r *replica) *atomic.Int64 {
	n := new(atomic.Int64)
	r.data.set(func(cmd redis.Cmder) error {
		if checkedBy(cmd) != nil {
			n.Add(int64(len(checkedBy(cmd))))
		}
		return nil
	}, nil)
	return n
}

// everySecond calls do each second for d, while one device a second registers and leaves.
func everySecond(t *testing.T, r *replica, d time.Duration, do func(i int)) {
	for i := range int(d / time.Second) {
		do(i)
		r.register(t, "passing").Release()
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func TestAHoldThatLosesNoEntriesHasNothingChecked(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"settings", "an evicted heartbeat"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("r1")
				r.registerMany(t, 5000)
				n := checks(r)
				everySecond(t, r, time.Minute, func(i int) {
					w.HSet(t.Context(), w.Witness(), "since", fmt.Sprint(i+1), "reason", reason)
					if reason != "settings" {
						w.Del(t.Context(), w.Heartbeat("r1"))
					}
				})
				require.InDelta(t, 2*500, n.Load(), 700, "a tenth each beat")
				w.end(r)
			})
		})
	}
}

func TestALossSoonAfterAnotherIsMadeGoodAnIntervalLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = true })
		r.registerMany(t, 2000)
		time.Sleep(r.Timing().Interval * 5 / 3) // no beat comes soon after the second interval
		for range 2 {
			w.Del(ctx, w.Beats())
			r.register(t, "one").Release() // its reply shows it
			time.Sleep(time.Second)
			w.HDel(ctx, w.Registry(), "imei-1000", "imei-1999")
		}
		time.Sleep(r.Timing().Interval + 2*time.Second)
		synctest.Wait()
		require.EqualValues(t, 2000, w.HLen(ctx, w.Registry()).Val())
		w.end(r)
	})
}

// listened writes a witness whose last tick was a second ago.
func (w *bubble) listened() {
	was := fmt.Sprint(time.Now().Add(-time.Second).UnixMilli())
	require.NoError(w.t, w.HSet(w.t.Context(), w.Witness(), "since", was, "last", was, "lost", was).Err())
}

func TestARegistryThatItsOwnersEmptyHasLostNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		logged := func(c *registry.Config) { c.Logger = logger }
		w.listened()
		r, other := w.start("r1", logged), w.start("r2", logged)
		r.register(t, "first").Release() // the registry did not exist yet
		time.Sleep(3 * r.Timing().Interval)
		synctest.Wait()
		log.Reset()
		for range 10 {
			r.register(t, "passing").Release()
			time.Sleep(r.Timing().Interval)
			other.register(t, "elsewhere").Release()
			time.Sleep(r.Timing().Interval)
			synctest.Wait()
		}
		require.Empty(t, log.String())
		w.end(r)
		w.end(other)
	})
}

func TestARegistryThatIsLostIsNoticedThoughItWasEmptiedBefore(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, w *bubble, r *replica){
		"deleted while it has entries": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.Del(t.Context(), w.Registry()).Err())
		},
		"flushed, and the witness begins anew": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.FlushAll(t.Context()).Err())
			w.listened()
		},
		"deleted, after a plain writer wrote the first entry": func(t *testing.T, w *bubble, r *replica) {
			require.NoError(t, w.Del(t.Context(), w.Registry()).Err())
			require.NoError(t, w.HSet(t.Context(), w.Witness(), "emptied", time.Now().UnixMilli()).Err())
			require.NoError(t, w.HSet(t.Context(), w.Registry(), "stays", "r1", "plain", "r3").Err())
			time.Sleep(r.Timing().Interval)
			synctest.Wait()
			require.NoError(t, w.Del(t.Context(), w.Registry()).Err())
		},
		"emptied, restarted, and written by an owner of an older version, before it is deleted": func(t *testing.T, w *bubble, _ *replica) {
			now := time.Now().UnixMilli()
			require.NoError(t, w.HSet(t.Context(), w.Witness(), "emptied", now-1, "lost", now).Err())
			require.NoError(t, w.Del(t.Context(), w.Registry()).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				w.listened()
				r, other := w.start("r1"), w.start("r2")
				r.register(t, "passing").Release()
				time.Sleep(time.Second)
				r.register(t, "stays")
				time.Sleep(time.Second)
				lose(t, w, r)
				before := w.HGet(t.Context(), w.Witness(), "lost").Val()
				time.Sleep(time.Second)
				other.register(t, "elsewhere") // hides the missing registry from r
				require.Greater(t, w.HGet(t.Context(), w.Witness(), "lost").Val(), before)
				time.Sleep(r.Timing().Interval + time.Second)
				synctest.Wait()
				require.Equal(t, "r1", w.owner("stays"))
				w.end(r)
				w.end(other)
			})
		})
	}
}

// The script that finds the record missing writes it anew, so later answers say nothing.
func TestALossWhoseOnlySignWasInAnAnswerThatNeverArrivedIsMadeGood(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"a beat", "a registration"} {
		for _, index := range []bool{true, false} {
			t.Run(fmt.Sprint(by, ", index ", index), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, w *bubble) {
					ctx := t.Context()
					r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = !index })
					r.registerMany(t, 2000)
					time.Sleep(r.Timing().Interval)
					synctest.Wait()
					w.HDel(ctx, w.Registry(), "imei-7", "imei-1000", "imei-1999")
					w.Del(ctx, w.Beats())
					lose := &r.control
					if by == "a registration" {
						lose = &r.data
						r.control.set(always, nil) // beats come later
						r.Register("passing")
					}
					lose.set(nil, always)
					time.Sleep(r.Timing().Interval)
					synctest.Wait()
					r.control.set(nil, nil)
					r.data.set(nil, nil)
					answers := time.Now()
					require.Eventually(t, func() bool { return w.owner("imei-1000") == "r1" }, r.Timing().Interval+time.Second, time.Second)
					t.Logf("after %v", time.Since(answers))
					require.Equal(t, []any{"r1", "r1"}, w.HMGet(ctx, w.Registry(), "imei-7", "imei-1999").Val())
					w.end(r)
				})
			})
		}
	}
}

// While nobody listens, nobody can be warned. The first tick does that.
func TestALossWhileNobodyListensIsMadeGoodWhenSomebodyDoes(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprint("somebody did before: ", before), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				if before {
					w.listened()
				}
				r, other := w.start("r1"), w.start("r2")
				r.registerMany(t, 2000)
				require.NoError(t, w.Del(ctx, w.Witness()).Err())
				time.Sleep(r.Timing().Interval)
				r.register(t, "passing").Release()
				time.Sleep(r.Timing().Interval * 7 / 2) // between two beats
				require.NoError(t, w.Del(ctx, w.Registry()).Err())
				other.register(t, "elsewhere") // hides the missing registry from r
				time.Sleep(time.Second)
				w.listened()
				time.Sleep(r.Timing().Interval + time.Second)
				synctest.Wait()
				require.EqualValues(t, 2001, w.HLen(ctx, w.Registry()).Val())
				w.end(r)
				w.end(other)
			})
		})
	}
}
