package janitor

import (
	"maps"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// mostMet bounds the owners known without a roster, half of them silent, so that leftovers of an
// old registry leave room for the living.
const mostMet = 20_000

// breaker records which owners lived when, and reports when implausibly many are silent. It has no
// clock.
//
//	fallen = fell silent within the last TTL, swept or not, without a goodbye
//	late   = alive but overdue, see rhythm
//	known  = lived a TTL ago (as far as known), has fallen since, or is late
//	tripped: fallen+late >= 2 and fallen+late > known/2
//
// Beats are not in step, so owners cut off at one instant fall silent over an interval. When the
// first heartbeat expires, the others that were cut off have at most about an interval left, and
// punctual ones almost TTL-Interval or more, which is twice that. So late counts the whole wave
// before any of it is swept, except owners cut off more than about half an interval after the
// first.
//
// The breaker counts owners, never entries: if one of three dies it is swept without delay, however
// many ids it held. A new leader assumes that the owners of the roster as first read, and of
// its first full scan, lived a TTL ago, and counts the silent ones as fallen now.
type breaker struct {
	timing guard.Timing
	forget time.Duration // an owner not judged for this long is forgotten
	primed bool          // the roster was read once
	metAll bool          // a full scan has met every owner
	owners map[string]*seen
	newest time.Time // when an owner was last found to have fallen
}

type seen struct {
	from   time.Time // alive since then
	fell   time.Time // first found silent; zero while alive
	bye    bool      // left in good order: its silence is expected
	asked  time.Time
	listed bool // was on the roster when last read
	swept  bool // a leader takes it off the roster, which is not a goodbye
	beats  rhythm
}

func newBreaker(t guard.Timing, interval time.Duration) *breaker {
	// Each full scan judges owners without a roster entry; one lost pass must not forget them.
	return &breaker{timing: t, forget: t.TTL + 3*interval, owners: map[string]*seen{}}
}

// absent returns the owners that are not among ids: those listed so far, and living others.
func (b *breaker) absent(ids []string) (listed, others []string) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id, o := range b.owners {
		switch {
		case there[id]:
		case o.listed:
			listed = append(listed, id)
		case o.fell.IsZero():
			others = append(others, id)
		}
	}
	return listed, others
}

// rosterRead takes a complete reading of the roster. byes are the silent owners that left in good
// order; gone is the liveness of the missing ones, which left nothing over. But a live owner never
// leaves: if one has, the roster was lost, and its absences mean nothing.
func (b *breaker) rosterRead(now time.Time, roster map[string]Liveness, byes map[string]bool,
	gone map[string]Liveness,
) {
	lost := false
	for _, liveness := range gone {
		lost = lost || liveness != Dead
	}
	for id, liveness := range gone {
		o := b.owners[id]
		if o == nil {
			continue
		}
		o.listed = false
		if lost {
			b.judged(now, id, liveness, byes[id])
			continue
		}
		o.bye = o.bye || !o.swept
		if o.fell.IsZero() {
			o.falls(now)
		}
	}
	for id, liveness := range roster {
		if !b.primed && b.owners[id] == nil {
			b.owners[id] = &seen{from: now.Add(-b.timing.TTL), asked: now}
		}
		b.judged(now, id, liveness, byes[id])
		if o := b.owners[id]; o != nil {
			o.listed = true
		}
	}
	b.primed = true
	b.prune(now)
}

// judged ignores the silence of an owner never seen alive, since it may be old. Unreadable changes
// nothing.
func (b *breaker) judged(now time.Time, id string, liveness Liveness, bye bool) {
	o := b.owners[id]
	if o == nil {
		if liveness == Alive && len(b.owners) < mostMet {
			b.owners[id] = &seen{from: now, asked: now}
		}
		return
	}
	o.asked = now
	switch {
	case liveness == Alive && !o.fell.IsZero(): // it is back
		o.from, o.fell, o.bye, o.swept = now, time.Time{}, false, false
	case liveness == Dead && o.fell.IsZero():
		o.falls(now)
		o.bye, b.newest = bye, now
	case liveness == Dead:
		o.bye = o.bye || bye
	}
}

func (o *seen) falls(now time.Time) { o.fell, o.beats = now, rhythm{} }

// met takes an owner found by a full scan, before judged: until a scan has met them all, each
// counts as alive a TTL ago.
func (b *breaker) met(now time.Time, id string, liveness Liveness) {
	most := mostMet
	if liveness == Dead {
		most /= 2
	}
	if b.owners[id] == nil && !b.metAll && len(b.owners) < most {
		b.owners[id] = &seen{from: now.Add(-b.timing.TTL), asked: now}
	}
}

func (b *breaker) beats(now time.Time, found map[string]Liveness, left map[string]time.Duration) {
	for id, liveness := range found {
		if o := b.owners[id]; o != nil && liveness == Alive {
			o.beats.read(now, left[id], b.timing)
		}
	}
}

func (b *breaker) isLate(o *seen) bool { return o.fell.IsZero() && o.beats.overdue(b.timing) }

func (b *breaker) anyLate() bool {
	for _, o := range b.owners {
		if b.isLate(o) {
			return true
		}
	}
	return false
}

func (b *breaker) lives(id string) bool {
	o := b.owners[id]
	return o != nil && o.fell.IsZero()
}

func (b *breaker) swept(id string) {
	if o := b.owners[id]; o != nil {
		o.swept = true
	}
}

type count struct{ fallen, late, known int }

func (c count) tripped() bool {
	silent := c.fallen + c.late
	return silent >= 2 && 2*silent > c.known
}

func (b *breaker) count(now time.Time) (c count) {
	ago := now.Add(-b.timing.TTL)
	for _, o := range b.owners {
		fell, late := !o.fell.IsZero() && o.fell.After(ago), b.isLate(o)
		if fell && !o.bye {
			c.fallen++
		}
		if late {
			c.late++
		}
		if lived := !o.from.After(ago) && (o.fell.IsZero() || fell); lived || fell || late {
			c.known++
		}
	}
	return c
}

func (b *breaker) prune(now time.Time) {
	maps.DeleteFunc(b.owners, func(_ string, o *seen) bool {
		return !o.fell.IsZero() && now.Sub(o.fell) > b.timing.TTL || now.Sub(o.asked) > b.forget
	})
}
