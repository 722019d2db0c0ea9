package janitor

import (
	"maps"
	"time"
)

// breaker knows which owners lived when, as far as this term has seen, and says when more of them
// have fallen silent than can be believed. It is pure: told what was seen when, it reads no clock.
//
//	fallen = fell silent within the last TTL, swept or not, without a goodbye
//	known  = believed to have lived a TTL ago, or fallen since
//	tripped: fallen >= 2 and fallen > known/2
//
// Owners are counted, never entries: one of three that dies is swept without delay, however many
// devices it held. A new leader does not know which owners lived a TTL ago. It takes the roster as
// it first reads it, and the owners that its first full scan meets: they count as having lived
// then, and those that are silent as fallen now.
type breaker struct {
	ttl    time.Duration
	forget time.Duration // an owner that was not asked for in so long is not known any more
	primed bool          // the roster was read once
	metAll bool          // a full scan has met every owner
	owners map[string]*seen
}

// seen is what is known of one owner.
type seen struct {
	from   time.Time // has lived since then
	fell   time.Time // was first found silent; zero: lives
	bye    bool      // said goodbye: its silence is no surprise
	asked  time.Time
	listed bool // stood on the roster when it was last read
}

func newBreaker(ttl, interval time.Duration) *breaker {
	// An owner without a roster entry is asked for by each full scan; one lost pass must not lose it.
	return &breaker{ttl: ttl, forget: ttl + 3*interval, owners: map[string]*seen{}}
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
			o.fell = now
		}
	}
	for id, liveness := range roster {
		if !b.primed && b.owners[id] == nil {
			b.owners[id] = &seen{from: now.Add(-b.ttl), asked: now}
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
		if liveness == Alive {
			b.owners[id] = &seen{from: now, asked: now}
		}
		return
	}
	o.asked = now
	switch {
	case liveness == Alive && !o.fell.IsZero(): // it is back
		o.from, o.fell, o.bye = now, time.Time{}, false
	case liveness == Dead && o.fell.IsZero():
		o.fell, o.bye = now, bye
	case liveness == Dead:
		o.bye = o.bye || bye
	}
}

// met takes an owner that a full scan met, before judged: until one has met them all, a new leader
// counts each that it meets as having lived a TTL ago.
func (b *breaker) met(now time.Time, id string) {
	if b.owners[id] == nil && !b.metAll {
		b.owners[id] = &seen{from: now.Add(-b.ttl), asked: now}
	}
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

// tripped counts, and tells whether this is more silence than can be believed.
func (b *breaker) tripped(now time.Time) (fallen, known int, tripped bool) {
	ago := now.Add(-b.ttl)
	for _, o := range b.owners {
		fell := !o.fell.IsZero() && o.fell.After(ago)
		if fell && !o.bye {
			fallen++
		}
		if lived := !o.from.After(ago) && (o.fell.IsZero() || fell); lived || fell {
			known++
		}
	}
	return fallen, known, fallen >= 2 && 2*fallen > known
}

// prune forgets the owners that fell longer than a TTL ago, and those not asked for any more.
func (b *breaker) prune(now time.Time) {
	maps.DeleteFunc(b.owners, func(_ string, o *seen) bool {
		return !o.fell.IsZero() && now.Sub(o.fell) > b.ttl || now.Sub(o.asked) > b.forget
	})
}
