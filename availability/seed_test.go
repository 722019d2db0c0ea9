package availability

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestASeedThatIsFlushedInItsMiddleCertifiesNothing(t *testing.T) {
	source := newFake()
	for i := range 600 {
		source.put(online(fmt.Sprintf("%04d", i)))
	}
	onEmpty(t, source, func(r *rig) {
		flush := func() {
			all, err := r.client.Keys(r.ctx, r.keys.Prefix+"*").Result()
			r.NoError(err)
			r.NoError(r.client.Del(r.ctx, all...).Err())
		}
		other := newFeed(r.another(source).Mirror)
		other.sawWhole = true
		rebuild := func() { // another replica makes a structure again that somebody overwrote
			r.poison("list", r.keys.deactivated(), "x")
			r.NoError(other.fit(r.ctx))
		}
		for at := 2; at <= 3; at++ { // the second page, and the end
			for _, loses := range []func(){flush, rebuild} {
				pages := 0
				r.source.at("Page", func() error {
					if pages++; pages == at {
						loses()
					}
					return nil
				})
				r.ErrorIs(r.seed(r.ctx), errEmptied)
				r.Zero(r.client.Exists(r.ctx, r.keys.seeded()).Val())
			}
		}
		r.mended()
		r.seeded()
		r.same()
	})
}

func TestOneReplicaFeedsAndADeadOneIsInNobodysWay(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		source, ctx, other := r.source, r.ctx, r.another(r.source)
		one, two := newFeed(r.Mirror), newFeed(other.Mirror)
		r.NoError(one.look(ctx))
		asked := source.asked("Feed")
		r.NoError(two.look(ctx))
		r.False(two.feeding)
		r.Equal(asked, source.asked("Feed"), "the source is asked by one alone")
		r.True(other.Health().Whole)

		// It dies: somebody by psql, and the lease expires.
		r.did(source.SetOnline(ctx, "a", false))
		r.redis("HSET", r.keys.fed(), "until", 1)
		r.NoError(two.look(ctx))
		r.same()
		r.NoError(one.look(ctx), "it was frozen")
		r.False(one.feeding)
		two.leave(ctx)
		r.NoError(one.look(ctx), "at once")
		r.True(one.feeding)
	})
}

func TestAFeederThatCannotReadTheSourceLetsAnotherFeed(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		other := r.another(newFake(online("a")))
		r.run()
		stop := other.run()
		r.failing("Feed")
		for _, source := range []*fake{r.source, other.source} {
			r.did(source.SetOnline(r.ctx, "a", false))
		}
		other.eventually(func() bool { return len(other.differences()) == 0 }, "the other one feeds")
		r.eventually(func() bool { return r.Health().Behind == 0 }, "for both")
		stop()
		r.eventually(func() bool { return r.Health().FeedError != "" }, "the status says so")
		r.did(r.source.SetOnline(r.ctx, "a", true))
		r.mended()
		r.eventually(func() bool { return r.Health().FeedError == "" && len(r.differences()) == 0 }, "nothing is lost")
	})
}

func TestAConnectionThatBeginsAnewIsSeededThoughTheMirrorSeemsWhole(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	w := redistest.World{Client: s.Client(), Options: s.Options(), Real: true}
	r := newRig(t, w, newFake(online("a")))
	r.run()
	ctx := r.ctx
	// Only the end of the subscription reveals that a server was rolled back.
	r.eventually(func() bool { return r.client.PubSubNumSub(ctx, r.keys.invalidate()).Val()[r.keys.invalidate()] == 1 }, "")
	r.redis("SREM", r.keys.online(), "a")
	r.NoError(r.client.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	r.eventually(func() bool { return len(r.differences()) == 0 }, "it is seeded again")
	// Counted when it is over, after its last write.
	r.eventually(func() bool { return testutil.ToFloat64(r.metrics.seeds) == 2 }, "and that is counted")
}

func TestStatesAreAppliedByVersionAlone(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		ctx := r.ctx
		now := time.Now().UTC().Truncate(time.Millisecond)
		v5 := State{ID: "a", Version: 5, Online: true, Active: true, Sessions: 2, Seen: now}
		v4 := State{ID: "a", Version: 4, Active: false, Sessions: 9}
		for _, s := range []State{v5, v4, v5, v4} {
			r.did(r.apply(ctx, newer, s))
		}
		r.Equal(v5, r.mirrored("a"))

		later := formatSeen(now.Add(time.Hour))
		r.redis("SET", r.keys.heartbeat("a"), later)
		v6 := v5
		v6.Version = 6
		r.did(r.apply(ctx, newer, v6))
		r.Equal(later, formatSeen(r.mirrored("a").Seen), "the later of two signs of life stays")

		v7 := State{ID: "a", Version: 7, Active: true, Seen: now}
		r.did(r.apply(ctx, newer, v7))
		got := r.mirrored("a")
		r.False(got.Online)
		r.True(got.Seen.IsZero(), "nobody offline has a heartbeat")
		r.Equal(redis.Nil, r.client.Get(ctx, r.keys.heartbeat("a")).Err())
	})
}

func TestTheServersClockAsISO8601(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		script := redis.NewScript(file("iso") + "return iso(tonumber(ARGV[1]))")
		for _, text := range []string{
			"1970-01-01T00:00:00.000Z", "2000-02-29T23:59:59.999Z", "2024-02-29T00:00:00.001Z", "2024-03-01T12:00:00.010Z",
			"2025-12-31T23:59:59.100Z", "2100-02-28T23:59:59.000Z", "2100-03-01T00:00:00.000Z", "2400-02-29T01:02:03.004Z",
		} {
			at, err := time.Parse(isoMS, text)
			require.NoError(t, err)
			got, err := script.Run(t.Context(), w.Client, nil, at.UnixMilli()).Text()
			require.NoError(t, err)
			require.Equal(t, text, got)
		}
	})
}
