package availability

import (
	"sync"
	"time"
)

const (
	// skewLeast is the least difference between two clocks that is corrected. Heartbeats go both ways
	// each minute: a correction that changes with each answer would make them a little younger each
	// time.
	skewLeast = time.Second
	// skewMoves is how far a measured difference is from the one in use when it replaces it.
	skewMoves = 500 * time.Millisecond
	// answerWithin is how long an answer with a time may take: longer ones are too inexact.
	answerWithin = 500 * time.Millisecond
)

// clocks compares two clocks: that of the server that has the mirror, which dates heartbeats, and
// the source's, which dates all that it stores. This process' own clock measures spans alone, so it
// may be as wrong as it likes.
type clocks struct {
	mu             sync.Mutex
	mirror, source answer
	skew           time.Duration // how far the source's clock is ahead, as it is corrected
}

// answer is a reading of a clock, and when that was here.
type answer struct{ there, here time.Time }

// at is that clock's time when it is then here.
func (a answer) at(then time.Time) time.Time { return a.there.Add(then.Sub(a.here)) }

func (c *clocks) mirrorSaid(begun, there time.Time) { c.said(&c.mirror, begun, there) }
func (c *clocks) sourceSaid(begun, there time.Time) { c.said(&c.source, begun, there) }

// said keeps a clock's answer to a question that was asked at begun.
func (c *clocks) said(which *answer, begun, there time.Time) {
	took := time.Since(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if there.IsZero() || took > answerWithin {
		return
	}
	*which = answer{there, begun.Add(took / 2)}
	if c.mirror.there.IsZero() || c.source.there.IsZero() {
		return
	}
	measured := c.source.there.Sub(c.mirror.at(c.source.here))
	switch {
	case (measured - c.skew).Abs() <= skewMoves:
	case measured.Abs() < skewLeast:
		c.skew = 0
	default:
		c.skew = measured
	}
}

// toMirror is a time of the source as the mirror's server has it. Zero stays zero.
func (c *clocks) toMirror(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(-c.skew)
}

// toSource is a time of the mirror's server as the source has it.
func (c *clocks) toSource(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(c.skew)
}

// sourceNow is the source's time; before it has answered, this process' own.
func (c *clocks) sourceNow() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source.there.IsZero() {
		return now
	}
	return c.source.at(now)
}

// judgedBefore is the time before which a sign of life that the source has is too old, by the
// source's clock, when the mirror's is now. Of two the earlier one: it keeps more mitras online.
func (c *clocks) judgedBefore(now time.Time, stale time.Duration) time.Time {
	cutoff := c.toSource(now)
	if own := c.sourceNow(); own.Before(cutoff) {
		cutoff = own
	}
	return cutoff.Add(-stale)
}
