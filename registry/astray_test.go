package registry_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestMemoryIsBoundedByOpenSocketsWhileRedisIsAwayAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	const before, open, rounds = 1400, 100, 30
	for name, broken := range lost {
		t.Run(name, func(t *testing.T) {
			withAndWithoutIndex(t, func(w *bubble, index func(*registry.Config)) {
				ctx := w.Context()
				r := w.start("r1", index)
				held := r.registerMany(before)
				theirs := w.start("r2")
				theirs.register("theirs")
				r.loses(broken[0], broken[1])
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
						require.LessOrEqual(w, r.Remembered(), before+open, "as many as were open once")
					}
				}
				require.Equal(w, 99, r.Status().Held)
				require.Empty(w, r.Miscounted())

				r.loses(nil, nil)
				pass(interval)
				entries := w.HGetAll(ctx, w.Registry()).Val()
				require.Equal(w, "r2", entries["theirs"])
				require.Len(w, entries, 100)
				require.Zero(w, r.Status().Pending)
				time.Sleep(ttl + interval)
				require.Empty(w, r.Status().Failing)
				require.Equal(w, 99, r.Remembered())
				for _, c := range held[:99] {
					c.Release()
				}
				w.end(r)
				w.kill(theirs)
				w.Del(ctx, w.Heartbeat("r2"), w.Devices("r2"), w.Roster(), w.Registry())
				require.Equal(w, []string{w.Beats()}, w.Keys(ctx, "*").Val())
			})
		})
	}
}

func TestARegistrationThatLandsAfterItsSocketClosedIsHandedBack(t *testing.T) {
	withAndWithoutIndex(t, func(w *bubble, index func(*registry.Config)) {
		ctx := w.Context()
		without := false
		r := w.start("r1", index, func(c *registry.Config) { without = c.NoReverseIndex })
		claims := r.registerMany(1200)
		r.data.set(always, nil)
		one := r.Register("one") // notices
		time.Sleep(time.Second)
		one.Release()
		for _, c := range claims {
			c.Release()
		}
		require.InDelta(w, 1100, r.Remembered(), 10, "others are forgotten")
		var whole atomic.Bool
		r.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "hscan" {
				whole.Store(true)
			}
			return nil
		}, nil)
		time.Sleep(interval + 10*time.Second)
		require.Zero(w, r.Status().Pending)
		require.Equal(w, without, whole.Load(), "the whole registry is read only without an index")
		// now a registration of a forgotten device lands
		w.write("imei-1199", "r1")
		if !without {
			w.SAdd(ctx, w.Devices("r1"), "imei-1199")
		}
		time.Sleep(ttl)
		w.is("imei-1199", "")

		r.data.set(always, nil) // the same of one that is not forgotten
		c := r.Register("imei")
		time.Sleep(100 * time.Millisecond)
		c.Release()
		r.data.set(nil, nil)
		time.Sleep(interval) // the release has landed
		w.write("imei", "r1")
		if !without {
			w.SAdd(ctx, w.Devices("r1"), "imei")
		}
		pass(interval + time.Second)
		w.is("imei", "")
		w.end(r)
		require.Equal(w, []string{w.Beats()}, w.Keys(ctx, "*").Val())
	})
}

// Whatever happens, the counters match a walk over all devices, and in the end Redis and the claims
// agree.
func TestCountersAreTrueWhateverHappens(t *testing.T) {
	eachBubble(t, map[string]uint64{"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}, func(w *bubble, seed uint64) {
		ctx, rnd := w.Context(), rand.New(rand.NewPCG(seed, 0))
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
				w.drop(imei())
			case 6:
				w.write(imei(), "r2")
			case 7:
				w.write(imei(), "r1")
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
			require.Empty(w, r1.Miscounted(), "seed %d", seed)
		}
		r1.data.set(nil, nil)
		for _, c := range claims {
			c.Release()
		}
		pass(ttl + 2*interval)
		require.Zero(w, r1.Remembered())
		require.Zero(w, r1.Status().Pending+r1.Status().Disputed+r1.Status().Held)
	})
}

func TestNothingIsRememberedOfSocketsThatComeAndGoAfterRunEnded(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		held := r.registerMany(100)
		r.data.set(always, nil) // leaves a release unwritten
		held[0].Release()
		r.stop()
		require.NoError(w, r.wait())
		require.Equal(w, 99, r.Remembered())

		again := r.Register("imei-1")
		for i := range 10_000 {
			c := r.Register(fmt.Sprint("late-", i))
			require.ErrorIs(w, c.Wait(w.Context()), registry.ErrStopping)
			c.Touch()
		}
		require.Equal(w, 99, r.Remembered())
		again.Release()
		for _, c := range held {
			c.Touch()
			c.Release()
		}
		require.Zero(w, r.Remembered())
		require.Empty(w, r.Miscounted())
	})
}
