package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// choice is a Config.Contend whose answer can be changed.
type choice struct {
	mu    sync.Mutex
	after time.Duration
	yes   bool
}

func (c *choice) set(after time.Duration, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after, c.yes = after, yes
}

func (c *choice) contend() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after, c.yes
}

// reserves starts reserves.
func (b *bench) reserves(n int) (all []*candidate) {
	for i := range n {
		r := b.candidate(fmt.Sprintf("reserve-%d", i))
		r.Elector.contend = func() (time.Duration, bool) { return 0, false }
		all = append(all, r.run(untilEnd))
	}
	return all
}

func leaders(all []*candidate) (n int) {
	for _, c := range all {
		if c.leads() {
			n++
		}
	}
	return n
}

func TestAReserveLeavesTheLeaseToTheFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		others := b.reserves(5)
		next := b.candidate("b").run(untilEnd)
		time.Sleep(20 * b.ttl)
		for released := range 2 {
			if released == 1 {
				a.stop()
			} else {
				a.line.breaks(gone) // it dies
			}
			await(b, next.terms)
			a.line.mend()
			require.Zero(t, leaders(others))
			a, next = next, b.candidate("c").run(untilEnd)
		}
	})
}

// Whenever all first contenders die, at any moment between two renewals, a reserve leads within two
// TTLs.
func TestAReserveLeadsWithinTwoTTLsWhenAllOfTheFirstDied(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for moment := range 10 {
			t.Run(fmt.Sprintf("deaf=%v/%d", deaf, moment), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					first := []*candidate{b.candidate("a").run(untilEnd)}
					await(b, first[0].terms)
					first = append(first, b.candidate("b").run(untilEnd), b.candidate("c").run(untilEnd))
					time.Sleep(time.Second + time.Duration(moment)*b.ttl/30)
					others := b.reserves(3)
					time.Sleep(10*b.ttl + time.Duration(moment)*b.ttl/10)
					if deaf {
						for _, r := range others {
							r.subscribed.Store(false)
						}
					}
					for _, c := range first {
						c.line.breaks(gone)
					}
					died := time.Now()
					for leaders(others) == 0 {
						require.Less(t, time.Since(died), 2*b.ttl)
						time.Sleep(time.Millisecond)
					}
					require.Equal(t, 1, leaders(others))
				})
			})
		}
	}
}

func TestAReserveThatIsAloneLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		r := b.reserves(1)[0]
		await(b, r.terms)
		require.GreaterOrEqual(t, time.Since(began), b.ttl/3, "the first would have had their chance")
		require.Less(t, time.Since(began), b.ttl)
		time.Sleep(20 * b.ttl)
		require.True(t, r.leads())
	})
}

func TestAReserveLooksOnceATTLAndAllOfAClientInOnePipeline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		o := Options(b.opts)
		o.PoolSize = 50
		client, line := redis.NewClient(o), &line{}
		client.AddHook(line)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		for i := range 16 {
			key := fmt.Sprintf("lease-%d", i)
			leader := b.candidate("leader")
			leader.key, leader.epochKey = key, "{"+key+"}:epoch"
			leader.run(untilEnd)
			await(b, leader.terms)
			r := b.candidate("reserve")
			r.client, r.key, r.epochKey = client, key, "{"+key+"}:epoch"
			r.Elector.contend = func() (time.Duration, bool) { return 0, false }
			r.run(untilEnd)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(4 * b.ttl)
		before := line.count("look")
		time.Sleep(20 * b.ttl)
		require.InDelta(t, 20, line.count("look")-before, 5)
	})
}

func TestAReserveWhoseSharedLookFailsLooksAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		r := b.reserves(1)[0]
		time.Sleep(4 * b.ttl)
		looks := r.line.count("look")
		r.line.breaksOnce("look", gone)
		for range 1000 {
			time.Sleep(b.ttl / 50)
			if r.line.count("look") >= looks+2 {
				break
			}
		}
		require.Equal(t, looks+2, r.line.count("look"))
		require.LessOrEqual(t, r.log.count(slog.LevelWarn), 1)
	})
}

func TestATermGoesOnWhereItsHolderBecomesAReserve(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, may := b.candidate("a"), &choice{yes: true}
		a.Elector.contend = may.contend
		a.run(untilEnd)
		term := await(b, a.terms)
		may.set(0, false)
		time.Sleep(20 * b.ttl)
		require.True(t, term.Valid())
	})
}

func TestALeaseIsTakenWhenItHasBeenFreeForLongEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, may := b.candidate("a"), &choice{after: 4 * time.Second, yes: true}
		a.Elector.contend = may.contend
		require.NoError(t, b.admin.Set(t.Context(), b.key, "other", 10*time.Second).Err())
		began := time.Now()
		a.run(untilEnd)
		await(b, a.terms)
		require.GreaterOrEqual(t, time.Since(began), 14*time.Second)
		require.Less(t, time.Since(began), 14*time.Second+b.ttl/3)

		// Somebody must lead even if a contender waits longer than a TTL.
		may.set(time.Hour, true)
		a.Resign(0)
		synctest.Wait()
		began = time.Now()
		await(b, a.terms)
		require.LessOrEqual(t, time.Since(began), 2*b.ttl)
	})
}

// An elector that resigned cools down for longer than any other waits, so it does not win before
// one that arrives later.
func TestWhoCoolsDownDoesNotWinAgainstWhoComesLater(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		other, may := b.candidate("b"), &choice{after: time.Hour, yes: true}
		other.Elector.contend = may.contend
		other.run(untilEnd)
		time.Sleep(b.ttl)
		a.Resign(b.ttl)
		time.Sleep(2 * b.ttl)
		require.True(t, other.leads())
	})
}

func TestWhoseWorkEndsLateCoolsDownFromTheReleaseOn(t *testing.T) {
	// How long the work continues after its term, in percent of a TTL.
	for _, share := range []time.Duration{30, 40, 90} {
		t.Run(fmt.Sprint(int(share)), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				work := share * b.ttl / 100
				a := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
					<-ctx.Done()
					time.Sleep(work)
					return nil
				})
				await(b, a.terms)
				other, may := b.candidate("b"), &choice{after: time.Hour, yes: true}
				other.Elector.contend = may.contend
				other.run(untilEnd)
				time.Sleep(b.ttl)
				a.Resign(b.ttl)
				time.Sleep(work + 2*b.ttl)
				require.True(t, other.leads())
				require.Empty(t, a.terms)
			})
		})
	}
}

// A lease that was won and given back at once was not free all the time.
func TestForHowLongALeaseWasFreeBeforeItWasGivenBackDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, may := b.candidate("a"), &choice{after: 4 * time.Second, yes: true}
		a.Elector.contend = may.contend
		a.line.breaksIf(func(cmd redis.Cmder) fault {
			if kindOf(cmd) == "epoch" {
				a.Resign(b.ttl)
			}
			return none
		})
		a.run(untilEnd)
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, a.line.count("release"), "it gave the lease back")
		a.line.mend()
		require.NoError(t, b.admin.Set(t.Context(), b.key, "other", b.ttl-2*time.Second).Err())
		time.Sleep(b.ttl - 2*time.Second) // a second before the cool-down is over
		free := time.Now()
		await(b, a.terms)
		require.GreaterOrEqual(t, time.Since(free), 4*time.Second)
	})
}

func TestForHowLongALeaseWasFreeBeforeATermDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, may := b.candidate("a"), &choice{after: 4 * time.Second, yes: true}
		a.Elector.contend = may.contend
		a.run(untilEnd)
		for range 2 {
			began := time.Now()
			await(b, a.terms)
			require.GreaterOrEqual(t, time.Since(began), 4*time.Second)
			a.Resign(0)
			synctest.Wait()
		}
	})
}
