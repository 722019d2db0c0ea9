package availability

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestASeedThatIsFlushedInItsMiddleCertifiesNothing(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake()
		for i := range 600 {
			source.put(online(fmt.Sprintf("%04d", i)))
		}
		r := newRig(t, w, source)
		flush := func() {
			all, err := r.client.Keys(t.Context(), w.Prefix+"*").Result()
			require.NoError(t, err)
			require.NoError(t, r.client.Del(t.Context(), all...).Err())
		}
		other := newFeed(newRig(t, w, source).Mirror)
		other.sawWhole = true
		rebuild := func() { // another replica makes a structure again that somebody overwrote
			r.poison("list", r.keys.deactivated(), "x")
			require.NoError(t, other.fit(t.Context()))
		}
		for at := 2; at <= 3; at++ { // the second page, and the end
			for _, loses := range []func(){flush, rebuild} {
				pages := 0
				source.fault.set(func(op string) error {
					if op == "Page" {
						if pages++; pages == at {
							loses()
						}
					}
					return nil
				})
				err := r.seed(t.Context())
				require.ErrorIs(t, err, errEmptied)
				require.Zero(t, r.client.Exists(t.Context(), r.keys.seeded()).Val())
			}
		}
		source.fault.set(func(string) error { return nil })
		r.seeded()
		r.same()
	})
}

func TestOneReplicaFeedsAndADeadOneIsInNobodysWay(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source, ctx := newFake(online("a")), t.Context()
		r, other := newRig(t, w, source), newRig(t, w, source)
		one, two := newFeed(r.Mirror), newFeed(other.Mirror)
		require.NoError(t, one.look(ctx))
		asked := source.asked("Feed")
		require.NoError(t, two.look(ctx))
		require.False(t, two.feeding)
		require.Equal(t, asked, source.asked("Feed"), "the source is asked by one alone")
		require.True(t, other.Health().Whole)

		// It dies: somebody by psql, and the lease expires.
		_, err := source.SetOnline(ctx, "a", false)
		require.NoError(t, err)
		require.NoError(t, r.client.HSet(ctx, r.keys.fed(), "until", 1).Err())
		require.NoError(t, two.look(ctx))
		r.same()
		require.NoError(t, one.look(ctx), "it was frozen")
		require.False(t, one.feeding)
		two.leave(ctx)
		require.NoError(t, one.look(ctx), "at once")
		require.True(t, one.feeding)
	})
}

func TestAFeederThatCannotReadTheSourceLetsAnotherFeed(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		cut, source := newFake(online("a")), newFake(online("a"))
		var away atomic.Bool
		cut.fault.set(func(op string) error {
			if op == "Feed" && away.Load() {
				return errors.New("no answer")
			}
			return nil
		})
		r, other := newRig(t, w, cut), newRig(t, w, source)
		r.run()
		other.run()
		away.Store(true)
		_, err := source.SetOnline(t.Context(), "a", false)
		require.NoError(t, err)
		other.eventually(func() bool { return len(other.differences()) == 0 }, "the other one feeds")
		r.eventually(func() bool { return r.Health().Behind == 0 }, "for both")
	})
}

func TestAConnectionThatBeginsAnewIsSeededThoughTheMirrorSeemsWhole(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	w := redistest.World{Client: s.Client(), Options: s.Options(), Real: true}
	r := newRig(t, w, newFake(online("a")))
	r.run()
	ctx := t.Context()
	// Only the end of the subscription reveals that a server was rolled back.
	r.eventually(func() bool { return r.client.PubSubNumSub(ctx, r.keys.invalidate()).Val()[r.keys.invalidate()] == 1 }, "")
	require.NoError(t, r.client.SRem(ctx, r.keys.online(), "a").Err())
	require.NoError(t, r.client.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	r.eventually(func() bool { return len(r.differences()) == 0 }, "it is seeded again")
	// Counted when it is over, after its last write.
	r.eventually(func() bool { return testutil.ToFloat64(r.metrics.seeds) == 2 }, "and that is counted")
}

func TestStatesAreAppliedByVersionAlone(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		r := newRig(t, w, source)
		r.seeded()
		ctx := t.Context()
		now := time.Now().UTC().Truncate(time.Millisecond)
		v5 := State{ID: "a", Version: 5, Online: true, Active: true, Sessions: 2, Seen: now}
		v4 := State{ID: "a", Version: 4, Active: false, Sessions: 9}
		for _, s := range []State{v5, v4, v5, v4} {
			_, err := r.apply(ctx, newer, s)
			require.NoError(t, err)
		}
		require.Equal(t, v5, r.mirrored("a"))

		later := formatSeen(now.Add(time.Hour))
		require.NoError(t, r.client.Set(ctx, r.keys.heartbeat("a"), later, 0).Err())
		v6 := v5
		v6.Version = 6
		_, err := r.apply(ctx, newer, v6)
		require.NoError(t, err)
		require.Equal(t, later, formatSeen(r.mirrored("a").Seen), "the later of two signs of life stays")

		v7 := State{ID: "a", Version: 7, Active: true, Seen: now}
		_, err = r.apply(ctx, newer, v7)
		require.NoError(t, err)
		got := r.mirrored("a")
		require.False(t, got.Online)
		require.True(t, got.Seen.IsZero(), "nobody offline has a heartbeat")
		require.Equal(t, redis.Nil, r.client.Get(ctx, r.keys.heartbeat("a")).Err())
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
