package lease

import (
	"math/rand/v2"
	"time"
)

// timings is a lease's TTL, together with every duration that follows from it.
// They are derived here and nowhere else, so that their relations hold for
// every TTL: a lost renewal leaves time for several more within the trust
// (9/10), and one that hangs for as long as it may (1/3, then 2/3 are gone)
// still leaves time for another.
type timings time.Duration

func (c timings) ttl() time.Duration    { return time.Duration(c) }
func (c timings) margin() time.Duration { return c.ttl() / 10 } // clocks that do not run alike
func (c timings) renew() time.Duration  { return c.ttl() / 3 }  // from one renewal to the next
func (c timings) again() time.Duration  { return c.ttl() / 20 } // from a failed renewal to the next
// from one look at the holder to the next
func (c timings) retry() time.Duration { return c.ttl() / 5 }

// the longest that one call may take
func (c timings) call() time.Duration { return c.ttl() / 3 }

// the longest that one try to release may take
func (c timings) part() time.Duration { return c.ttl() / 15 }

// nextLook spreads the retries by ± 20 %, so that waiters which began together
// do not go on together.
func (c timings) nextLook() time.Duration {
	return c.retry()*4/5 + rand.N(c.retry()*2/5+1)
}

// trust is what a holder may believe about its lease: a value, and all that it
// answers is arithmetic, with the present moment as an argument.
type trust struct {
	since time.Time // when the attempt that won or last renewed the lease began
	pace  timings
}

// until is the moment from which the lease may be another's.
func (t trust) until() time.Time { return t.since.Add(t.pace.ttl() - t.pace.margin()) }

// left is how long the lease can be relied on; never negative.
func (t trust) left(now time.Time) time.Duration { return max(0, t.until().Sub(now)) }

// renewAt is when the next renewal is due.
func (t trust) renewAt() time.Time { return t.since.Add(t.pace.renew()) }

// budget is how long a call that begins now may take: what comes back after the
// trust is over is of no use.
func (t trust) budget(now time.Time) time.Duration { return min(t.pace.call(), t.left(now)) }

// renewed is the trust after a renewal that began at begun and whose reply is in
// hand now. It counts from the request, so that a slow reply wins nothing. A
// reply that comes when the trust is over does not bring it back (false): the
// term's context has ended, and the lease may have been another's in between.
func (t trust) renewed(begun, now time.Time) (trust, bool) {
	if t.left(now) == 0 {
		return t, false
	}
	return trust{since: begun, pace: t.pace}, true
}
