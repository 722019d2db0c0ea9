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

// A Clock estimates another machine's, from the times in its answers. This process's clock only
// measures durations, so it may be wrong. The zero Clock knows nothing yet.
type Clock struct {
	mu          sync.Mutex
	there, here time.Time
}

// Learn takes the time in an answer to a call that began at begun. A time that was read after this
// machine was suspended wins over any other; a slow answer is better than none.
func (c *Clock) Learn(begun, there time.Time) {
	now := time.Now()
	took := now.Sub(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if asleep(begun, now).Abs() <= skewMoves && (took <= answerWithin || c.there.IsZero()) {
		c.there, c.here = there, begun.Add(took/2)
	}
}

// At returns its time at one of ours; zero: it is not known since this machine was suspended.
func (c *Clock) At(then time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there.IsZero() || asleep(c.here, then).Abs() > skewMoves {
		return time.Time{}
	}
	return c.there.Add(then.Sub(c.here))
}

// Forget has the next answer count, however long it took: the estimate was wrong.
func (c *Clock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there = time.Time{}
}

// asleep returns how much further the wall clock moved than the monotonic one, which stops while a
// machine is suspended. It is as large, either way, if somebody set the wall clock.
func asleep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// clocks compares the mirror's server, which dates heartbeats, with the source, which dates all
// that it stores.
type clocks struct {
	mirror Clock
	source *Clock // nil: it dates by the mirror's

	mu       sync.Mutex
	skew     time.Duration // how far the source's clock is ahead, as corrected
	compared bool          // skew was measured
}

var errUncompared = errors.New("availability: the clocks of Redis and the source are not compared yet")

// compare measures the skew again, after either has answered.
func (c *clocks) compare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	mirror, measured := c.mirror.At(now), time.Duration(0)
	if c.source != nil {
		source := c.source.At(now)
		if source.IsZero() || mirror.IsZero() {
			return
		}
		measured = source.Sub(mirror)
	}
	c.compared = true
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
	c.skew, c.compared = time.Duration(n)*time.Millisecond, true
}

// sourceNow is our own time until the servers have answered.
func (c *clocks) sourceNow() time.Time {
	now := time.Now()
	if c.source != nil {
		if there := c.source.At(now); !there.IsZero() {
			return there
		}
	}
	if there := c.mirror.At(now); !there.IsZero() {
		return c.toSource(there)
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
