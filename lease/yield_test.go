package lease

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// yielding starts a candidate that lets others go first for at most d.
func (b *bench) yielding(name string, d time.Duration) *candidate {
	c := b.candidate(name)
	c.yield = func() time.Duration { return min(d, b.ttl*2/3) }
	return c.run(untilEnd)
}

// However others die, and whether a release is heard or not, somebody leads within two TTLs.
func TestWhoYieldsForLongestLeadsWithinTwoTTLsWhenAllOthersDied(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for moment := range 10 {
			t.Run(fmt.Sprintf("deaf=%v/%d", deaf, moment), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					first := b.candidate("a").run(untilEnd)
					await(b, first.terms)
					time.Sleep(time.Second + time.Duration(moment)*b.ttl/30)
					last := b.yielding("last", time.Hour)
					time.Sleep(10*b.ttl + time.Duration(moment)*b.ttl/10)
					last.subscribed.Store(!deaf)
					first.line.breaks(gone)
					died := time.Now()
					await(b, last.terms)
					require.Less(t, time.Since(died), 2*b.ttl)
				})
			})
		}
	}
}

func TestWhoYieldsComesThatMuchLater(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const later = 4 * time.Second
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		other := b.yielding("other", later)
		time.Sleep(20 * b.ttl)
		require.InDelta(t, 20*b.ttl/(b.ttl*5/6+later), other.line.count("look"), 4, "and looks as much less often")
		for _, expires := range []bool{false, true} {
			next := b.candidate("next").run(untilEnd)
			synctest.Wait()
			if expires {
				a.line.breaks(gone)
			}
			a.stop()
			await(b, next.terms)
			require.False(t, other.leads())
			a = next
		}
		a.stop()
		released := time.Now()
		await(b, other.terms)
		require.InDelta(t, later+wakeJitter/2, time.Since(released), float64(wakeJitter/2))
	})
}

// A reading in somebody's pipeline is as good as an own look.
func TestWhoYieldsAndSeesTheLeaseHeldNeedNotLook(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		other := b.yielding("other", b.ttl/2)
		time.Sleep(b.ttl)
		looks := other.line.count("look")
		see := func(c *candidate) {
			pipe := c.client.Pipeline()
			holder := c.HolderIn(t.Context(), pipe)
			h, err := holder(together.Exec(t.Context(), pipe))
			require.NoError(t, err)
			require.Equal(t, h.Instance == "a", a.leads())
		}
		for range 20 {
			see(other)
			time.Sleep(b.ttl)
		}
		require.Equal(t, looks+20, other.line.count("look"))
		a.line.breaks(gone)
		died := time.Now()
		await(b, other.terms)
		require.Less(t, time.Since(died), 2*b.ttl)

		see(other) // its own
		a.stop()
		other.Resign(0)
		synctest.Wait()
		resigned := time.Now()
		await(b, other.terms)
		require.Less(t, time.Since(resigned), b.ttl)
	})
}

func TestNobodyYieldsForMoreThanTwoThirdsOfATTL(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(Options(&redis.Options{Addr: "127.0.0.1:1"}))
	defer client.Close()
	e, err := New(Config{
		Client: client, Key: "k", Instance: "i", Yield: func() time.Duration { return time.Hour },
	})
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, e.yield())
}

// An elector that resigned for a TTL does not win before one that yields, however late its work
// ends (in percent of a TTL).
func TestWhoseWorkEndsLateCoolsDownFromTheReleaseOn(t *testing.T) {
	for _, share := range []time.Duration{0, 30, 90} {
		t.Run(fmt.Sprint(int(share)), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				work := share * b.ttl / 100
				a := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
					<-ctx.Done()
					time.Sleep(work)
					return nil
				})
				await(b, a.terms)
				other := b.yielding("b", time.Hour)
				time.Sleep(b.ttl)
				a.Resign(b.ttl)
				time.Sleep(work + 2*b.ttl)
				require.True(t, other.leads())
				require.Empty(t, a.terms)
			})
		})
	}
}

// A leader that resigned may have led on a former primary: its connections are closed, so it dials
// anew, by name.
func TestWhoGaveUpItsTermDialsAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		idle := func() uint32 { return a.client.(*redis.Client).PoolStats().IdleConns }
		require.Positive(t, idle())
		a.Resign(b.ttl)
		time.Sleep(time.Second)
		require.Zero(t, idle())
	})
}

func TestElectorsOfAnotherDatabaseHearNoReleases(t *testing.T) {
	t.Parallel()
	for db, want := range map[int]string{0: "{k}:released", 3: "db3:{k}:released"} {
		o := Options(&redis.Options{Addr: "127.0.0.1:1"})
		o.DB = db
		client := redis.NewClient(o)
		defer client.Close()
		e, err := New(Config{Client: client, Key: "k", Instance: "i"})
		require.NoError(t, err)
		require.Equal(t, want, e.channel)
	}
}
