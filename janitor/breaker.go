package janitor

import (
	"maps"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// mostMet bounds the owners that the breaker knows without a roster: half of them silent, so that
// the rubbish of an old registry leaves room for the living.
const mostMet = 20_000

// breaker records which owners lived when, as far as this term has seen, and reports when more of
// them are silent than can be believed. It is pure: its callers pass the time.
//
//	fallen = fell silent within the last TTL, swept or not, without a goodbye
//	late   = alive, and overdue: see rhythm
//	known  = believed to have lived a TTL ago, or fallen since, or late
//	tripped: fallen+late >= 2 and fallen+late > known/2
//
// Beats are not in step, so owners that are cut off at one instant fall silent one after the other
// over an interval. When the first heartbeat ends, the others that were cut off have at most about
// an interval left, and those in time almost TTL-Interval or more, which is twice that. So late
// counts the whole wave before any of it is swept. Owners that are cut off more than about half an
// interval after the first may still look in time then.
//
// Owners are counted, never entries: one of three that dies is swept without delay, however many
// devices it held, also while another has lost a beat. A new leader does not know which owners
// lived a TTL ago. It takes the roster as it first reads it, and the owners that its first full
// scan meets: they count as having lived then, and those that are silent as fallen now.
type breaker struct {
	timing guard.Timing
	forget time.Duration // an owner that was not asked for in so long is not known any more
	primed bool          // the roster was read once
	metAll bool          // a full scan has met every owner
	owners map[string]*seen
	newest time.Time // when an owner was last found to have fallen
}

// seen is what is known of one owner.
type seen struct {
	from   time.Time // has lived since then
	fell   time.Time // was first found silent; zero: lives
	bye    bool      // said goodbye: its silence is no surprise
	asked  time.Time
	listed bool // was on the roster when that was last read
	beats  rhythm
}

func newBreaker(t guard.Timing, interval time.Duration) *breaker {
	// An owner without a roster entry is asked for by each full scan; one lost pass must not lose it.
	return &breaker{timing: t, forget: t.TTL + 3*interval, owners: map[string]*seen{}}
}

// missing are the owners that stood on the roster when it was last read, and are not among ids, the
// roster of now.
func (b *breaker) missing(ids []string) (gone []string) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id, o := range b.owners {
		if o.listed && !there[id] {
			gone = append(gone, id)
		}
	}
	return gone
}

// rosterRead takes a complete reading of the roster: the liveness of each owner there. byes are the
// silent ones that said goodbye. gone is the liveness of the missing. An owner that left the
// roster, and was not taken off by this term, said a goodbye that left nothing behind. But an owner
// that lives never leaves the roster: if one has, the roster was lost, and says nothing of the
// others.
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
		if o.bye = true; o.fell.IsZero() {
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

// judged takes one owner's liveness, found anywhere. It is not known when an owner fell that was
// never seen alive, so its silence says nothing about today. What cannot be read changes nothing.
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
		o.from, o.fell, o.bye = now, time.Time{}, false
	case liveness == Dead && o.fell.IsZero():
		o.falls(now)
		o.bye, b.newest = bye, now
	case liveness == Dead:
		o.bye = o.bye || bye
	}
}

func (o *seen) falls(now time.Time) { o.fell, o.beats = now, rhythm{} }

// met takes an owner that a full scan met, before judged: until one has met them all, a new leader
// counts each that it meets as having lived a TTL ago.
func (b *breaker) met(now time.Time, id string, liveness Liveness) {
	most := mostMet
	if liveness == Dead {
		most /= 2
	}
	if b.owners[id] == nil && !b.metAll && len(b.owners) < most {
		b.owners[id] = &seen{from: now.Add(-b.timing.TTL), asked: now}
	}
}

// beats takes the life that heartbeats have left, of the owners found alive; a heartbeat that never
// expires is not in left.
func (b *breaker) beats(now time.Time, found map[string]Liveness, left map[string]time.Duration) {
	for id, liveness := range found {
		if o := b.owners[id]; o != nil && liveness == Alive {
			o.beats.read(now, left[id], b.timing)
		}
	}
}

// unlisted returns the owners that live, and are neither among ids, the roster of now, nor missing.
func (b *breaker) unlisted(ids []string) (others []string) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id, o := range b.owners {
		if !o.listed && o.fell.IsZero() && !there[id] {
			others = append(others, id)
		}
	}
	return others
}

func (b *breaker) isLate(o *seen) bool { return o.fell.IsZero() && o.beats.overdue(b.timing) }

// anyLate reports whether the beat of any owner is overdue.
func (b *breaker) anyLate() bool {
	for _, o := range b.owners {
		if b.isLate(o) {
			return true
		}
	}
	return false
}

// lives tells whether an owner was alive when it was last asked for.
func (b *breaker) lives(id string) bool {
	o := b.owners[id]
	return o != nil && o.fell.IsZero()
}

// swept notes that this term took an owner off the roster, which is no goodbye.
func (b *breaker) swept(id string) {
	if o := b.owners[id]; o != nil {
		o.listed = false
	}
}

// A count is what the breaker decides by; see there.
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

// prune forgets the owners that fell longer than a TTL ago, and those not asked for any more.
func (b *breaker) prune(now time.Time) {
	maps.DeleteFunc(b.owners, func(_ string, o *seen) bool {
		return !o.fell.IsZero() && now.Sub(o.fell) > b.timing.TTL || now.Sub(o.asked) > b.forget
	})
}
