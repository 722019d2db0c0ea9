package availability

import (
	"errors"
	"strconv"
	"sync"
	"time"
)

const (
	// skewLeast: smaller differences stay. Heartbeats are copied both ways each minute, so a
	// correction that changed with each answer would make them younger each time.
	skewLeast = time.Second
	// skewMoves is by how much a new measurement must differ to replace the correction.
	skewMoves = 500 * time.Millisecond
	// answerWithin: times of slower answers are too inexact.
	answerWithin = 500 * time.Millisecond
)

// clocks compares the mirror's server, which dates heartbeats, with the source, which dates all
// that it stores. This process's clock only measures durations, so it may be wrong.
type clocks struct {
	mu             sync.Mutex
	mirror, source answer
	skew           time.Duration // how far the source's clock is ahead, as corrected
	compared       bool          // skew was measured
}

var errUncompared = errors.New("availability: the clocks of Redis and the source are not compared yet")

// asleep returns how much further the wall clock moved than the monotonic one, which stops while a
// machine is suspended. It is as large, either way, if somebody set the wall clock.
func asleep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// answer is a remote clock's time, and ours at that moment.
type answer struct{ there, here time.Time }

func (a answer) at(then time.Time) time.Time { return a.there.Add(then.Sub(a.here)) }

func (c *clocks) mirrorSaid(begun, there time.Time) { c.said(&c.mirror, &c.source, begun, there) }
func (c *clocks) sourceSaid(begun, there time.Time) { c.said(&c.source, &c.mirror, begun, there) }

func (c *clocks) said(which, other *answer, begun, there time.Time) {
	now := time.Now()
	took := now.Sub(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if there.IsZero() { // the source dates by the mirror's clock: see Cursor.At
		c.compared = true
		return
	}
	// Nothing converts a time before the first comparison, so a slow answer is better than none.
	if took > answerWithin && c.compared || asleep(begun, now).Abs() > skewMoves {
		return
	}
	*which = answer{there, begun.Add(took / 2)}
	if asleep(other.here, which.here).Abs() > skewMoves { // the time between the two is unknown
		*other = answer{}
	}
	if c.mirror.there.IsZero() || c.source.there.IsZero() {
		return
	}
	c.compared = true
	measured := c.source.there.Sub(c.mirror.at(c.source.here))
	switch {
	case (measured - c.skew).Abs() <= skewMoves:
	case measured.Abs() < skewLeast:
		c.skew = 0
	default:
		c.skew = measured
	}
}

// check returns errUncompared until times can be converted.
func (c *clocks) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.compared {
		return errUncompared
	}
	return nil
}

// toMirror converts a time of the source. Zero stays zero.
func (c *clocks) toMirror(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(-c.skew)
}

func (c *clocks) toSource(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(c.skew)
}

// measured is the correction in ms, for other replicas; "" before the first comparison.
func (c *clocks) measured() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.compared {
		return ""
	}
	return strconv.FormatInt(c.skew.Milliseconds(), 10)
}

// adopt takes the correction that the feeding replica measured.
func (c *clocks) adopt(ms string) {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew, c.compared, c.source = time.Duration(n)*time.Millisecond, true, answer{}
}

// sourceNow is our own time until the servers have answered.
func (c *clocks) sourceNow() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.source.there.IsZero():
		return c.source.at(now)
	case !c.mirror.there.IsZero():
		return c.mirror.at(now).Add(c.skew)
	}
	return now
}

// judgedBefore returns the oldest sign of life at the source that still counts, by its clock. now
// is the mirror's time. The earlier of two estimates keeps more mitras online.
func (c *clocks) judgedBefore(now time.Time, stale time.Duration) time.Time {
	cutoff := c.toSource(now)
	if own := c.sourceNow(); own.Before(cutoff) {
		cutoff = own
	}
	return cutoff.Add(-stale)
}
