package availability

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestWritersAndFeedHaveTimeToBringWhatDiffers(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		r.did(r.source.SetOnline(r.ctx, "a", false))
		ctx, cancel := context.WithCancel(r.ctx)
		r.before(func(cmd redis.Cmder) error {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == applyScript.Hash() {
				time.AfterFunc(time.Millisecond, cancel)
			}
			return nil
		})
		_, _, err := r.reconcile(ctx, func(_ context.Context, f func(context.Context) error) error { return f(r.ctx) })
		r.ErrorIs(err, context.Canceled, "it waited")
		r.Zero(r.drift(Behind))
	}, func(c *Config) { c.Tick = never })
}

func TestAnUnknownThatIsWrittenMeanwhileStays(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		ctx := r.ctx
		r.redis("SADD", r.keys.online(), "new", "unknown")
		r.before(func(cmd redis.Cmder) error {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == removeScript.Hash() {
				return r.client.HSet(ctx, r.keys.version(), "new", 1).Err()
			}
			return nil
		})
		r.reconciled()
		r.ElementsMatch([]string{"a", "new"}, r.client.SMembers(ctx, r.keys.online()).Val())
	})
}

func TestAMirrorThatIsEmptiedDuringAReconciliationIsNoDrift(t *testing.T) {
	onWhole(t, newFake(online("a"), online("b")), func(r *rig) {
		source := r.source
		source.at("Page", func() error {
			return r.client.Del(r.ctx, r.keys.seeded(), r.keys.online(), r.keys.version()).Err()
		})
		_, _, err := r.reconcile(r.ctx, directly)
		r.ErrorIs(err, errUnseeded)
		r.Zero(r.drift(Behind))
	})
}

// reconciled is one reconciliation, which must go well.
func (r *rig) reconciled() map[string]int {
	r.t.Helper()
	found, _, err := r.reconcile(r.ctx, directly)
	r.NoError(err)
	return found
}

func TestAReconciliationNamesEachKindOfDriftAndHealsIt(t *testing.T) {
	source := newFake()
	for i := range 20 {
		s := online(fmt.Sprint("m", i))
		s.Version = 10
		source.put(s)
	}
	onWhole(t, source, func(r *rig) {
		r.Empty(r.reconciled())
		ctx, k, c := r.ctx, r.keys, r.client

		r.did(source.SetOnline(ctx, "m1", false))
		r.redis("HDEL", k.version(), "m2")
		r.redis("SET", k.capacity("m3"), 7)
		r.redis("SREM", k.online(), "m4")
		r.redis("SADD", k.deactivated(), "m5")
		r.redis("SET", k.heartbeat("m6"), "nonsense")
		r.redis("HSET", k.version(), "m7", 99) // and the source lost those commits
		r.redis("SADD", k.online(), "unknown-1")
		r.redis("HSET", k.version(), "unknown-2", 3)
		r.redis("SET", k.capacity("unknown-2"), 1)
		wrong := source.state("m8")
		wrong.Sessions = 2
		source.base["m8"] = wrong

		want := map[string]int{Behind: 3, Differs: 4, Ahead: 1, Unknown: 2, Base: 1} // no feed brings m8
		r.Equal(want, r.reconciled())
		for kind, n := range want {
			r.Equal(n, r.drift(kind), kind)
		}
		r.same()
		r.Equal(int64(100), source.state("m7").Version, "outbid")
		r.Zero(c.Exists(ctx, k.capacity("unknown-2")).Val())
		r.Equal(2, r.mirrored("m8").Sessions)
		r.Empty(r.reconciled(), "all of it is healed")
	})
}

func TestARedisThatIsAheadOfAReadIsNotOutbidIfTheSourceHasCaughtUp(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		source := r.source
		stale := source.state("a")
		r.did(r.Offline(r.ctx, "a"))
		x := r.reconciliation(compare, directly)
		found, err := x.bring(r.ctx, heal, []State{stale})
		r.NoError(err)
		r.Equal([]unequal{{Versioned{"a", 2}, Ahead}}, found)
		r.did(x.settle(r.ctx, found))
		r.Zero(source.asked("Outbid"))
		r.Empty(x.found)
		r.same()
	})
}

func TestAnEmptySourceRemovesNothing(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		clear(r.source.rows)
		_, _, err := r.reconcile(r.ctx, directly)
		r.ErrorIs(err, errEmptySource)
		r.True(r.client.SIsMember(r.ctx, r.keys.online(), "a").Val())
	})
}
