package guard

import "time"

// Timing is what a fleet agrees on: how often its instances beat, and how long a heartbeat lasts.
// All that the guard calls long enough follows from it.
type Timing struct {
	Interval time.Duration // between the heartbeats of one instance
	TTL      time.Duration // of a heartbeat; at least three intervals
}

// Gap is the longest time between two ticks of the witness after which silence still proves
// something: (TTL - Interval) / 2.
func (t Timing) Gap() time.Duration { return (t.TTL - t.Interval) / 2 }

// Grace is the grace period: how long Redis must have been heard without a hold before anything is
// deleted. It is TTL + 2 s.
func (t Timing) Grace() time.Duration { return t.TTL + 2*time.Second }
