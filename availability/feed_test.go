package availability

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestASourceThatIsAwayDelaysTheFeedAndLosesNothing(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		var away atomic.Bool
		source.fault.set(func(op string) error {
			if away.Load() && op == "Feed" {
				return errors.New("connection refused")
			}
			return nil
		})
		r := newRig(t, w, source)
		r.run()
		away.Store(true)
		r.eventually(func() bool { return r.Health().FeedError != "" }, "the status says so")
		_, err := source.SetOnline(t.Context(), "a", false)
		require.NoError(t, err)
		away.Store(false)
		r.eventually(func() bool { return len(r.differences()) == 0 }, "it is brought afterwards")
		r.eventually(func() bool { return r.Health().FeedError == "" }, "")
	})
}

func TestWritersAndFeedHaveTimeToBringWhatDiffers(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		r := newRig(t, w, source, func(c *Config) { c.Tick = never })
		r.seeded()
		_, err := source.SetOnline(t.Context(), "a", false)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		r.rdb.AddHook(commands{func(cmd redis.Cmder) error {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == applyScript.Hash() {
				time.AfterFunc(time.Millisecond, cancel)
			}
			return nil
		}})
		_, _, err = r.reconcile(ctx, func(_ context.Context, f func(context.Context) error) error { return f(t.Context()) })
		require.ErrorIs(t, err, context.Canceled, "it waited")
		require.Zero(t, r.drift(Behind))
	})
}

func TestAnUnknownThatIsWrittenMeanwhileStays(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		r.seeded()
		ctx := t.Context()
		require.NoError(t, r.client.SAdd(ctx, r.keys.online(), "new", "unknown").Err())
		r.rdb.AddHook(commands{func(cmd redis.Cmder) error {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == removeScript.Hash() {
				return r.client.HSet(ctx, r.keys.version(), "new", 1).Err()
			}
			return nil
		}})
		r.reconciled()
		require.ElementsMatch(t, []string{"a", "new"}, r.client.SMembers(ctx, r.keys.online()).Val())
	})
}

func TestAMirrorThatIsEmptiedDuringAReconciliationIsNoDrift(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"), online("b"))
		r := newRig(t, w, source)
		r.seeded()
		source.fault.set(func(op string) error {
			if op == "Page" {
				return r.client.Del(t.Context(), r.keys.seeded(), r.keys.online(), r.keys.version()).Err()
			}
			return nil
		})
		_, _, err := r.reconcile(t.Context(), directly)
		require.ErrorIs(t, err, errUnseeded)
		require.Zero(t, r.drift(Behind))
	})
}

// reconciled is one reconciliation, which must go well.
func (r *rig) reconciled() map[string]int {
	r.t.Helper()
	found, _, err := r.reconcile(r.t.Context(), directly)
	require.NoError(r.t, err)
	return found
}

func TestAReconciliationNamesEachKindOfDriftAndHealsIt(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake()
		for i := range 20 {
			s := online(fmt.Sprint("m", i))
			s.Version = 10
			source.put(s)
		}
		r := newRig(t, w, source)
		r.seeded()
		require.Empty(t, r.reconciled())
		ctx, k, c := t.Context(), r.keys, r.client

		_, err := source.SetOnline(ctx, "m1", false)
		require.NoError(t, err)
		require.NoError(t, c.HDel(ctx, k.version(), "m2").Err())
		require.NoError(t, c.Set(ctx, k.capacity("m3"), 7, 0).Err())
		require.NoError(t, c.SRem(ctx, k.online(), "m4").Err())
		require.NoError(t, c.SAdd(ctx, k.deactivated(), "m5").Err())
		require.NoError(t, c.Set(ctx, k.heartbeat("m6"), "nonsense", 0).Err())
		require.NoError(t, c.HSet(ctx, k.version(), "m7", 99).Err()) // and the source lost those commits
		require.NoError(t, c.SAdd(ctx, k.online(), "unknown-1").Err())
		require.NoError(t, c.HSet(ctx, k.version(), "unknown-2", 3).Err())
		require.NoError(t, c.Set(ctx, k.capacity("unknown-2"), 1, 0).Err())
		wrong := source.state("m8")
		wrong.Sessions = 2
		source.base["m8"] = wrong

		want := map[string]int{Behind: 3, Differs: 4, Ahead: 1, Unknown: 2, Base: 1} // no feed brings m8
		require.Equal(t, want, r.reconciled())
		for kind, n := range want {
			require.Equal(t, n, r.drift(kind), kind)
		}
		r.same()
		require.Equal(t, int64(100), source.state("m7").Version, "outbid")
		require.Zero(t, c.Exists(ctx, k.capacity("unknown-2")).Val())
		require.Equal(t, 2, r.mirrored("m8").Sessions)
		require.Empty(t, r.reconciled(), "all of it is healed")
	})
}

func TestARedisThatIsAheadOfAReadIsNotOutbidIfTheSourceHasCaughtUp(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		r := newRig(t, w, source)
		r.seeded()
		stale := source.state("a")
		_, err := r.Offline(t.Context(), "a")
		require.NoError(t, err)
		x := r.reconciliation(compare, directly)
		found, err := x.bring(t.Context(), heal, []State{stale})
		require.NoError(t, err)
		require.Equal(t, []unequal{{Versioned{"a", 2}, Ahead}}, found)
		_, err = x.settle(t.Context(), found)
		require.NoError(t, err)
		require.Zero(t, source.asked("Outbid"))
		require.Empty(t, x.found)
		r.same()
	})
}

func TestAnEmptySourceRemovesNothing(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		newRig(t, w, newFake(online("a"))).seeded()
		r := newRig(t, w, newFake())
		_, _, err := r.reconcile(t.Context(), directly)
		require.ErrorIs(t, err, errEmptySource)
		require.True(t, r.client.SIsMember(t.Context(), r.keys.online(), "a").Val())
	})
}
