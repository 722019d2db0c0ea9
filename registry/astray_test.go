package registry_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestMemoryIsBoundedByOpenSocketsWhileRedisIsAwayAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	const before, open, rounds = 1400, 100, 30
	away := map[string]func(*faults){
		"requests are lost": func(f *faults) { f.set(always, nil) },
		"replies are lost":  func(f *faults) { f.set(nil, always) },
	}
	for name, broken := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
				ctx := t.Context()
				r := w.start("r1", index)
				held := r.registerMany(t, before)
				theirs := w.start("r2")
				theirs.register(t, "theirs")
				broken(&r.data)
				broken(&r.control)
				for round := range rounds {
					claims := make([]*registry.Claim, open)
					for i := range claims {
						claims[i] = r.Register(fmt.Sprintf("%d/%d", round, i))
					}
					time.Sleep(4 * time.Second)
					for _, c := range claims {
						c.Release()
					}
					if round == 0 { // their entries have landed
						for _, c := range held[99:] {
							c.Release()
						}
					}
					if round > 0 {
						require.LessOrEqual(t, r.Remembered(), before+open, "as many as were open once")
					}
				}
				require.Equal(t, 99, r.Status().Held)
				require.Empty(t, r.Miscounted())

				r.data.set(nil, nil)
				r.control.set(nil, nil)
				time.Sleep(r.Timing().Interval)
				synctest.Wait()
				entries := w.HGetAll(ctx, w.Registry()).Val()
				require.Equal(t, "r2", entries["theirs"])
				require.Len(t, entries, 100)
				require.Zero(t, r.Status().Pending)
				time.Sleep(r.Timing().TTL + r.Timing().Interval)
				require.Empty(t, r.Status().Failing)
				require.Equal(t, 99, r.Remembered())
				for _, c := range held[:99] {
					c.Release()
				}
				w.end(r)
				w.kill(theirs)
				w.Del(ctx, w.Heartbeat("r2"), w.Devices("r2"), w.Roster(), w.Registry())
				require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val())
			})
		})
	}
}

func TestWhatLandsAfterItsDeviceWasForgottenIsFound(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		ctx := t.Context()
		without := false
		r := w.start("r1", index, func(c *registry.Config) { without = c.NoReverseIndex })
		claims := r.registerMany(t, 1200)
		r.data.set(always, nil)
		one := r.Register("one") // notices
		time.Sleep(time.Second)
		one.Release()
		for _, c := range claims {
			c.Release()
		}
		require.InDelta(t, 1100, r.Remembered(), 10, "others are forgotten")
		var whole atomic.Bool
		r.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "hscan" {
				whole.Store(true)
			}
			return nil
		}, nil)
		time.Sleep(r.Timing().Interval + 10*time.Second)
		require.Zero(t, r.Status().Pending)
		require.Equal(t, without, whole.Load(), "the whole registry is read only without an index")
		// now a registration of a forgotten device lands
		w.HSet(ctx, w.Registry(), "imei-1199", "r1")
		if !without {
			w.SAdd(ctx, w.Devices("r1"), "imei-1199")
		}
		time.Sleep(r.Timing().TTL)
		require.Empty(t, w.owner("imei-1199"))
		w.end(r)
		require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val())
	})
}

// Whatever happens, the counters match a walk over all devices, and in the end Redis and the claims
// agree.
func TestCountersAreTrueWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx, rnd := t.Context(), rand.New(rand.NewPCG(seed, 0))
				r1 := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = seed%2 == 0 })
				r2 := w.start("r2")
				claims := map[string]*registry.Claim{}
				imei := func() string { return fmt.Sprint(rnd.IntN(30)) }
				for range 1000 {
					switch rnd.IntN(16) {
					case 0:
						r1.data.set(always, nil)
					case 1:
						r1.data.set(nil, always)
					case 2:
						r1.data.set(func(redis.Cmder) error { time.Sleep(time.Second); return nil }, nil)
					case 3, 4:
						r1.data.set(nil, nil)
					case 5:
						w.HDel(ctx, w.Registry(), imei())
					case 6:
						w.HSet(ctx, w.Registry(), imei(), "r2")
					case 7:
						w.HSet(ctx, w.Registry(), imei(), "r1")
					case 8:
						r2.Register(imei()).Release()
					case 9:
						time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
					case 10, 11:
						id := imei()
						claims[id] = r1.Register(id)
					case 12, 13:
						if c := claims[imei()]; c != nil {
							c.Release()
						}
					case 14:
						if c := claims[imei()]; c != nil {
							c.Touch()
						}
					case 15:
						w.SRem(ctx, w.Devices("r1"), imei())
					}
					require.Empty(t, r1.Miscounted(), "seed %d", seed)
				}
				r1.data.set(nil, nil)
				for _, c := range claims {
					c.Release()
				}
				time.Sleep(r1.Timing().TTL + 2*r1.Timing().Interval)
				synctest.Wait()
				require.Zero(t, r1.Remembered())
				require.Zero(t, r1.Status().Pending+r1.Status().Disputed+r1.Status().Held)
				w.end(r1)
				w.end(r2)
			})
		})
	}
}

func TestNothingIsRememberedOfSocketsThatComeAndGoAfterRunEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		held := r.registerMany(t, 100)
		r.data.set(always, nil) // leaves a release unwritten
		held[0].Release()
		r.stop()
		require.NoError(t, r.wait())
		require.Equal(t, 99, r.Remembered())

		again := r.Register("imei-1")
		for i := range 10_000 {
			c := r.Register(fmt.Sprint("late-", i))
			require.ErrorIs(t, c.Wait(t.Context()), registry.ErrStopping)
			c.Touch()
		}
		require.Equal(t, 99, r.Remembered())
		again.Release()
		for _, c := range held {
			c.Touch()
			c.Release()
		}
		require.Zero(t, r.Remembered())
		require.Empty(t, r.Miscounted())
	})
}
