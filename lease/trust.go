package lease

import (
	"math/rand/v2"
	"time"
)

// timings is a lease's TTL. All durations derive from it here, so that their relations hold for
// every TTL: after a lost renewal the trust window (9/10) leaves time for several more, and after
// one that hangs for as long as it may (1/3, so 2/3 are gone) still for another.
type timings time.Duration

func (c timings) ttl() time.Duration    { return time.Duration(c) }
func (c timings) margin() time.Duration { return c.ttl() / 10 } // for clocks of different speeds
func (c timings) renew() time.Duration  { return c.ttl() / 3 }  // between renewals
func (c timings) again() time.Duration  { return c.ttl() / 20 } // from a failure to the next try
func (c timings) retry() time.Duration  { return c.ttl() / 5 }  // between attempts
func (c timings) call() time.Duration   { return c.ttl() / 3 }  // longest single call
func (c timings) part() time.Duration   { return c.ttl() / 15 } // same, for a try to release

// distant is the longest time that a renewal can leave on a lease, if this elector saw at most a
// TTL left on it. While its holder trusts it, a tenth of the holder's own TTL is left.
func (c timings) distant() time.Duration { return 10 * c.ttl() }

// nextAttempt separates waiters that began together.
func (c timings) nextAttempt() time.Duration {
	return c.retry()*4/5 + rand.N(c.retry()*2/5+1)
}

// trustWindow is how long a holder may believe that it holds the lease.
type trustWindow struct {
	since time.Time // when the attempt that won or last renewed the lease began
	times timings
}

func (w trustWindow) until() time.Time { return w.since.Add(w.times.ttl() - w.times.margin()) }

func (w trustWindow) left(now time.Time) time.Duration { return max(0, w.until().Sub(now)) }

func (w trustWindow) renewAt() time.Time { return w.since.Add(w.times.renew()) }

// budget: a reply after the window is useless.
func (w trustWindow) budget(now time.Time) time.Duration { return min(w.times.call(), w.left(now)) }

// renewed counts from the request, so that a slow reply gains nothing. A late reply does not reopen
// the window (false): another may have held the lease meanwhile.
func (w trustWindow) renewed(begun, now time.Time) (trustWindow, bool) {
	if w.left(now) == 0 {
		return w, false
	}
	return trustWindow{since: begun, times: w.times}, true
}
