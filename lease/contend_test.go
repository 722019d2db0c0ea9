package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
