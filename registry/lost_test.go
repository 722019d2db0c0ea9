package registry_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// Only the hash is lost, deleted or evicted, and another replica writes an entry before this one
// checks: a registry exists again, and only the witness shows that it is not the old one.
func TestALostRegistryThatAnotherReplicaBeginsAnewIsHealedWithinAnInterval(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *replica, *registry.Claim){
		"by a registration": func(t *testing.T, r *replica, _ *registry.Claim) { r.register(t, "passing") },
		"by a heal":         func(_ *testing.T, _ *replica, c *registry.Claim) { c.FrameReceived() },
	} {
		for _, index := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", index ", index), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *bubble) {
					ctx, same := t.Context(), func(c *registry.Config) { c.NoReverseIndex = !index }
					w.HSet(ctx, w.Witness(), "last", "1", "lost", "1") // somebody contends
					r1, r2 := w.start("r1", same), w.start("r2", same)
					const held = 5000
					r1.registerMany(t, held)
					passing := r2.register(t, "passing")
					time.Sleep(7 * time.Second)
					require.NoError(t, w.Del(ctx, w.Registry()).Err())
					begin(t, r2, passing)
					time.Sleep(r1.Timing().Interval + time.Second)
					synctest.Wait()
					require.EqualValues(t, held+1, w.HLen(ctx, w.Registry()).Val())
				})
			})
		}
	}
}

func TestAnIndexOfAnotherTypeKeepsNoFormerLifeFromBeingHandedBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		require.NoError(t, w.HSet(ctx, w.Registry(), "left-over", "r1").Err())
		require.NoError(t, w.Set(ctx, w.Devices("r1"), "x", 0).Err())
		r := w.start("r1")
		<-r.Started()
		time.Sleep(r.Timing().Interval)
		synctest.Wait()
		require.Empty(t, w.owner("left-over"))
		require.Contains(t, r.Status().Failing["heal"], "WRONGTYPE", "and it is told")
		before := r.failures("heal")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.InDelta(t, float64(time.Hour/r.Timing().Interval), r.failures("heal")-before, 10, "once an interval")
		require.NoError(t, w.Del(ctx, w.Devices("r1")).Err())
		time.Sleep(2 * r.Timing().Interval)
		synctest.Wait()
		require.Empty(t, r.Status().Failing)
	})
}

// During an outage more devices came and went than are remembered. The index lists those that
// landed.
func TestWhatWasForgottenIsLookedForInTheIndexAlone(t *testing.T) {
	for _, index := range []bool{true, false} {
		t.Run(fmt.Sprint("index ", index), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("", func(c *registry.Config) { c.NoReverseIndex = !index })
				time.Sleep(time.Minute)
				r.control.set(always, nil)
				r.data.set(nil, always) // everything runs, but no reply arrives
				for round := range 8 {
					var claims []*registry.Claim
					for i := range 500 {
						claims = append(claims, r.Register(fmt.Sprint(round, "-", i)))
					}
					time.Sleep(5 * time.Second)
					for _, c := range claims {
						c.Release()
					}
				}
				var scans atomic.Int64
				r.data.set(func(c redis.Cmder) error {
					if c.Name() == "hscan" {
						scans.Add(1)
					}
					return nil
				}, nil)
				r.control.set(nil, nil)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.Zero(t, w.HLen(t.Context(), w.Registry()).Val())
				require.Equal(t, !index, scans.Load() > 0)
			})
		})
	}
}

func TestTheFirstEntryOfARegistryTellsEveryOwnerThatThereWasNone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		lost := func() string { return w.HGet(t.Context(), w.Witness(), "lost").Val() }
		r := w.start("r1")
		r.register(t, "a")
		require.Zero(t, w.Exists(t.Context(), w.Witness()).Val(), "nobody listens yet")
		require.NoError(t, w.HSet(t.Context(), w.Witness(), "last", "1").Err())
		r.register(t, "b")
		require.Empty(t, lost(), "there is a registry")
		require.NoError(t, w.Del(t.Context(), w.Registry()).Err())
		r.register(t, "c")
		require.Equal(t, fmt.Sprint(time.Now().UnixMilli()), lost())
	})
}
