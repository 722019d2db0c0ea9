package guard

import "time"

// Timing holds the settings that a fleet must agree on: how often instances beat, and how long a
// heartbeat lasts. GAP and GRACE follow from them.
type Timing struct {
	Interval time.Duration // between two heartbeats of an instance
	TTL      time.Duration // of a heartbeat; at least three intervals
}

// Gap is the longest time between two ticks of the witness after which silence still counts as
// evidence: (TTL - Interval) / 2.
func (t Timing) Gap() time.Duration { return (t.TTL - t.Interval) / 2 }

// Grace is the grace period: how long Redis must have been observed without a hold before anything
// is deleted. It is TTL + 2 s.
func (t Timing) Grace() time.Duration { return t.TTL + 2*time.Second }
