package lease

import (
	"math/rand/v2"
	"time"
)

// timings is a lease's TTL, together with every duration that follows from it. They are derived
// here and nowhere else, so that their relations hold for every TTL: a lost renewal leaves time for
// several more within the trust window (9/10), and one that hangs for as long as it may (1/3, then
// 2/3 are gone) still leaves time for another.
type timings time.Duration

func (c timings) ttl() time.Duration    { return time.Duration(c) }
func (c timings) margin() time.Duration { return c.ttl() / 10 } // clocks that do not run alike
func (c timings) renew() time.Duration  { return c.ttl() / 3 }  // from one renewal to the next
func (c timings) again() time.Duration  { return c.ttl() / 20 } // from a failure to the next try
func (c timings) retry() time.Duration  { return c.ttl() / 5 }  // from one attempt to the next
func (c timings) call() time.Duration   { return c.ttl() / 3 }  // the longest that one call may take
func (c timings) part() time.Duration   { return c.ttl() / 15 } // and one of several tries to release

// distant is the most that a renewal gives to a lease of which this elector saw no more than a TTL
// left. While its holder trusts it the margin is left, which is a tenth of the holder's own TTL.
func (c timings) distant() time.Duration { return 10 * c.ttl() }

// reserveTurn is the time between two moments at which a reserve may look at a lease.
func (c timings) reserveTurn() time.Duration { return c.ttl() / 3 }

// reserveAfter is for how long a lease must have been free for a reserve to take it: long enough
// for the first to take it, spread so that reserves do not all come at once, and together with
// reserveTurn less than the TTL after which somebody must lead.
func (c timings) reserveAfter() time.Duration { return c.ttl()/3 + rand.N(c.ttl()/6) }

// nextAttempt spreads the attempts by ± 20 %, so that waiters which began together do not go on
// together.
func (c timings) nextAttempt() time.Duration {
	return c.retry()*4/5 + rand.N(c.retry()*2/5+1)
}

// trustWindow is how long a holder may believe that the lease is its own. It is a value: all that
// it answers is arithmetic, with the present moment as an argument.
type trustWindow struct {
	since time.Time // when the attempt that won or last renewed the lease began
	times timings
}

// until is the moment from which the lease may be another's.
func (w trustWindow) until() time.Time { return w.since.Add(w.times.ttl() - w.times.margin()) }

// left is how long the lease can be relied on; never negative.
func (w trustWindow) left(now time.Time) time.Duration { return max(0, w.until().Sub(now)) }

// renewAt is when the next renewal is due.
func (w trustWindow) renewAt() time.Time { return w.since.Add(w.times.renew()) }

// budget is how long a call that begins now may take: a reply after the window is of no use.
func (w trustWindow) budget(now time.Time) time.Duration { return min(w.times.call(), w.left(now)) }

// renewed is the window after a renewal that began at begun and whose reply is in hand now. It
// counts from the request, so that a slow reply wins nothing. A reply after the end of the window
// does not reopen it (false): the term's context has ended, and meanwhile another may have held the
// lease.
func (w trustWindow) renewed(begun, now time.Time) (trustWindow, bool) {
	if w.left(now) == 0 {
		return w, false
	}
	return trustWindow{since: begun, times: w.times}, true
}
