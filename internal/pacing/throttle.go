package pacing

import (
	"slices"
	"time"
)

// Why sweeps get less than Config.Share.
const (
	Latency   = "latency"   // small calls take longer than usual: Redis has other work
	Heartbeat = "heartbeat" // a living owner's heartbeat comes late
)

const (
	leastPart = 0.2             // of the setting: the dead have to go
	recovery  = 5 * time.Second // from nothing to the setting
)

// throttle is the share of Redis' time that sweeps may take. It is pure.
type throttle struct {
	most, share float64
	reason      string // why share is below most; ""
	at          time.Time
}

// step takes what suffers now.
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
	samples = 10 // are looked at together: one slow call means nothing, nor does one quick one
	// slack is what a small call may take beyond its usual time, or half of that if it is more.
	slack = 200 * time.Microsecond
	// usualAfter is about how long a change of the latency lasts until it is the usual.
	usualAfter = 5 * time.Minute
)

// latency knows what a small call takes, and whether that is more than usual. It is pure.
type latency struct {
	last       []time.Duration // oldest first
	now, usual time.Duration   // upper quartile of the last, and its usual value; 0: not known
	at         time.Time       // when usual was set
}

// saw takes what one small call took. The usual falls at once, and rises slowly.
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

// strained tells whether small calls take clearly longer than usual.
func (l *latency) strained() bool { return l.now > l.usual+max(l.usual/2, slack) }

// heartbeats is what was read of each owner's heartbeat. It is pure.
type heartbeats struct {
	at time.Time // of the last reading
	of map[string]life
}

// life is the most that one heartbeat was seen with, which is its TTL: other kinds of writers have
// their own. left is what it had at the last reading.
type life struct{ most, left time.Duration }

// overdue takes what the heartbeats have left, and tells whether a living owner's comes late. One
// in time never has less left than its TTL less the interval. One that has less, by more than two
// retries, has failed to beat. That says something about Redis for one interval; an owner that is
// silent for longer is dying, and sparing Redis does not help it. Owners not in left are forgotten.
//
// Redis' clock can go back, and an owner can return with a lower TTL. Then more was seen than the
// TTL. A beat ends that, the next or the one after. It puts the heartbeat's end off, and came after
// the last reading. So the TTL is at most what is left and the time since that reading.
func (h *heartbeats) overdue(now time.Time, left map[string]time.Duration, interval time.Duration) bool {
	late := false
	passed, retries := now.Sub(h.at), interval/5 // a retry comes each interval/10
	of := make(map[string]life, len(left))
	for id, d := range left {
		l, known := h.of[id]
		if known && d-l.left+passed > retries { // it beat
			l.most = min(l.most, d+passed)
		}
		l = life{most: max(l.most, d), left: d}
		by := l.most - d - interval - retries
		late = late || (by > 0 && by < interval)
		of[id] = l
	}
	h.at, h.of = now, of
	return late
}
