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
				inBubble(t, func(b *bench) {
					first, _ := b.leader("a")
					time.Sleep(time.Second + time.Duration(moment)*b.ttl/30)
					last := b.yielding("last", time.Hour)
					time.Sleep(10*b.ttl + time.Duration(moment)*b.ttl/10)
					last.subscribed.Store(!deaf)
					first.line.breaks(gone)
					died := time.Now()
					await(b, last.terms)
					require.Less(b, time.Since(died), 2*b.ttl)
				})
			})
		}
	}
}

func TestWhoYieldsComesThatMuchLater(t *testing.T) {
	inBubble(t, func(b *bench) {
		const later = 4 * time.Second
		a, _ := b.leader("a")
		other := b.yielding("other", later)
		time.Sleep(20 * b.ttl)
		require.InDelta(b, 20*b.ttl/(b.ttl*5/6+later), other.line.count("look"), 4, "and looks as much less often")
		for _, expires := range []bool{false, true} {
			next := b.candidate("next").run(untilEnd)
			synctest.Wait()
			if expires {
				a.line.breaks(gone)
			}
			a.stop()
			await(b, next.terms)
			require.False(b, other.leads())
			a = next
		}
		a.stop()
		released := time.Now()
		await(b, other.terms)
		require.InDelta(b, later+wakeJitter/2, time.Since(released), float64(wakeJitter/2))
	})
}

// A reading in somebody's pipeline is as good as an own look.
func TestWhoYieldsAndSeesTheLeaseHeldNeedNotLook(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, _ := b.leader("a")
		other := b.yielding("other", b.ttl/2)
		time.Sleep(b.ttl)
		looks := other.line.count("look")
		see := func(c *candidate) {
			pipe := c.client.Pipeline()
			holder := c.HolderIn(b.Context(), pipe)
			h, err := holder(together.Exec(b.Context(), pipe))
			require.NoError(b, err)
			require.Equal(b, h.Instance == "a", a.leads())
		}
		for range 20 {
			see(other)
			time.Sleep(b.ttl)
		}
		require.Equal(b, looks+20, other.line.count("look"))
		a.line.breaks(gone)
		died := time.Now()
		await(b, other.terms)
		require.Less(b, time.Since(died), 2*b.ttl)

		see(other) // its own
		a.stop()
		other.Resign(0)
		synctest.Wait()
		resigned := time.Now()
		await(b, other.terms)
		require.Less(b, time.Since(resigned), b.ttl)
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
	rows(t, map[string]time.Duration{"0": 0, "30": 30, "90": 90}, func(b *bench, share time.Duration) {
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
		require.True(b, other.leads())
		require.Empty(b, a.terms)
	})
}

// A leader that resigned may have led on a former primary: its connections are closed, so it dials
// anew, by name.
func TestWhoGaveUpItsTermDialsAnew(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, _ := b.leader("a")
		idle := func() uint32 { return a.client.(*redis.Client).PoolStats().IdleConns }
		require.Positive(b, idle())
		a.Resign(b.ttl)
		time.Sleep(time.Second)
		require.Zero(b, idle())
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
