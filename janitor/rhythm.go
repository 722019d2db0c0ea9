package janitor

import (
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// habit is the number of consecutive late beats after which lateness is normal for an owner. With
// fewer, a flapping network would hide the outage that follows.
const habit = 3

// rhythm decides whether an owner's next beat is overdue. It has no clock.
//
// An owner is held to the fleet's timing until it is seen to use another. One reading cannot
// distinguish a shorter TTL from an owner cut off a while ago: both count as overdue.
type rhythm struct {
	at   time.Time       // of the last reading; zero: none, or a heartbeat that never expires
	left time.Duration   // remaining life at that reading
	ttl  time.Duration   // upper bound of the TTL that its owner sets
	lows []time.Duration // remaining life at each of the last beats, oldest first, at most habit
}

// leastInTime returns the shortest remaining life of a punctual owner's heartbeat. It allows for
// one lost beat and the Interval/10 before each of two retries.
func leastInTime(t guard.Timing) time.Duration {
	timeout := min(t.Interval/2, 2*time.Second) // as in registry.Registry's beats
	return t.TTL - t.Interval - timeout - t.Interval/5
}

func (r *rhythm) read(now time.Time, left time.Duration, t guard.Timing) {
	passed := now.Sub(r.at)
	switch {
	case left == 0:
		*r = rhythm{}
		return
	case r.at.IsZero():
		r.ttl = max(left, t.TTL)
	case left-r.left+passed > t.Interval/10: // it has beaten since the last reading
		r.ttl = min(max(r.ttl, left), left+passed)
		// After a long time without a reading, the number of beats in it is unknown.
		if passed < t.Interval*3/4 {
			r.lows = append(r.lows, max(0, r.lowest(passed, left, t)))
			r.lows = r.lows[max(0, len(r.lows)-habit):]
		}
	}
	r.at, r.left = now, left
}

func (r *rhythm) lowest(passed, left time.Duration, t guard.Timing) time.Duration {
	if r.foreign(t) {
		return r.left - passed
	}
	since := min(max(0, t.TTL-left), passed) // since the beat
	return r.left - (passed - since)
}

func (r *rhythm) foreign(t guard.Timing) bool { return r.ttl > t.TTL || r.ttl < t.TTL-t.Interval }

// Another TTL scales everything.
func (r *rhythm) overdue(t guard.Timing) bool {
	if r.at.IsZero() {
		return false
	}
	least := leastInTime(t)
	if r.foreign(t) {
		least = time.Duration(float64(least) * float64(r.ttl) / float64(t.TTL))
	}
	if len(r.lows) == habit {
		least = min(least, slices.Max(r.lows)-t.Interval/5)
	}
	return r.left < least
}
