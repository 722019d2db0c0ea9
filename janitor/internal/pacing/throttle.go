package pacing

import (
	"slices"
	"time"
)

// Reasons for less than Config.Share.
const (
	Latency   = "latency"   // small calls are slower than usual: Redis has other work
	Heartbeat = "heartbeat" // a live owner's heartbeat is late
)

const (
	leastPart = 0.2 // of the setting: the dead must be swept
	recovery  = 5 * time.Second
)

type throttle struct {
	most, share float64
	reason      string // why share is below most, or ""
	at          time.Time
}

func (t *throttle) step(now time.Time, late, strained bool) {
	grown := t.most * now.Sub(t.at).Seconds() / recovery.Seconds()
	t.at = now
	switch {
	case late:
		t.reason, t.share = Heartbeat, max(t.share/2, t.most*leastPart)
	case strained:
		t.reason, t.share = Latency, max(t.share/2, t.most*leastPart)
	case t.share+grown < t.most:
		t.share += grown
	default:
		t.reason, t.share = "", t.most
	}
}

const (
	samples = 10 // looked at together: a single slow or quick call means nothing
	// slack is how much slower than usual a small call may be, unless half of the usual is more.
	slack = 200 * time.Microsecond
	// usualAfter is about how long a changed latency lasts until it is the usual one.
	usualAfter = 5 * time.Minute
)

// latency is the latency of small calls. It has no clock.
type latency struct {
	last       []time.Duration
	now, usual time.Duration // upper quartile of the last, and its usual value; 0: unknown
	at         time.Time     // when usual was set
}

// saw lets the usual fall at once, and rise slowly.
func (l *latency) saw(at time.Time, took time.Duration) {
	if l.last = append(l.last, took); len(l.last) < samples {
		return
	}
	l.last = l.last[len(l.last)-samples:]
	l.now = slices.Sorted(slices.Values(l.last))[samples*3/4]
	part := min(1, at.Sub(l.at).Seconds()/usualAfter.Seconds()) // 1 at first
	l.usual = min(l.now, l.usual+time.Duration(part*float64(l.now-l.usual)))
	l.at = at
}

func (l *latency) strained() bool { return l.now > l.usual+max(l.usual/2, slack) }
