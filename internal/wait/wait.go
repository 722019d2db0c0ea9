// Package wait lets time pass, and measures what has passed, in one way for all packages here.
package wait

import (
	"context"
	"time"
)

// For returns true after d, or false as soon as ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff waits twice as long each time, within bounds.
type Backoff struct{ first, most, next time.Duration }

// Between returns a Backoff from first to most.
func Between(first, most time.Duration) *Backoff { return &Backoff{first, most, first} }

// Wait waits as For does.
func (b *Backoff) Wait(ctx context.Context) bool {
	pause := b.next
	b.next = min(2*pause, b.most)
	return For(ctx, pause)
}

// Reset makes the next Wait as short as the first.
func (b *Backoff) Reset() { b.next = b.first }

// Nudge wakes whoever waits for slot, which has room for one: a nudge that nobody took yet
// suffices.
func Nudge(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// Age returns the time from at to now by the monotonic or the wall clock, whichever gives more. The
// monotonic clock stops while a machine is suspended; the wall clock may be set back.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}
