package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// choice is what Config.Contend answers, as it is changed.
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

func TestWhoIsNotToContendLeavesTheLeaseAndKeepsATerm(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, may := b.candidate("a"), &choice{}
		a.Elector.contend = may.contend
		a.run(untilEnd)
		time.Sleep(20 * b.ttl)
		require.Empty(t, b.value())
		may.set(0, true)
		term := await(b, a.terms)
		may.set(0, false)
		time.Sleep(20 * b.ttl)
		require.True(t, term.Valid())
		a.Resign(0)
		time.Sleep(20 * b.ttl)
		require.Empty(t, b.value())
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

		// Who waits longer than a TTL may is still no reason that nobody leads.
		may.set(time.Hour, true)
		a.Resign(0)
		synctest.Wait()
		began = time.Now()
		await(b, a.terms)
		require.LessOrEqual(t, time.Since(began), 2*b.ttl)
	})
}

// One that has resigned cools down for longer than anybody waits: it does not win again before who
// came later.
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
	// Of a TTL, in percent: for so long the work goes on after its term.
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
