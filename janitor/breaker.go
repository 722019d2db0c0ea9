package janitor

import "time"

// breaker knows which owners lived when, as far as this term has seen, and says when more of them
// have fallen silent than can be believed. It is pure: told what was seen when, it reads no clock.
//
//	fallen = fell silent within the last TTL, swept or not, without a goodbye
//	known  = those of whom it is believed that they lived a TTL ago, or have fallen since
//	tripped: fallen >= 2 and fallen > known/2
//
// Owners are counted, never entries: one of three that dies is swept without delay, however many
// devices it held. A new leader does not know who lived a TTL ago. It takes the roster at its first
// look, and the owners that its first full scan meets: they count as having lived then, and those
// that are silent as fallen now.
type breaker struct {
	ttl    time.Duration
	forget time.Duration // an owner that nobody asked for in so long is not known any more
	primed bool          // the first look is over
	whole  bool          // a full scan has met every owner
	owners map[string]*seen
}

// seen is what is known of one owner.
type seen struct {
	from   time.Time // has lived since then
	fell   time.Time // was first found silent; zero: lives
	bye    bool      // said goodbye: its silence is no surprise
	asked  time.Time
	listed bool // stood on the roster at the last look
}

func newBreaker(ttl, interval time.Duration) *breaker {
	// An owner without a roster entry is asked for by each full scan; one lost pass must not lose it.
	return &breaker{ttl: ttl, forget: ttl + 3*interval, owners: map[string]*seen{}}
}

// missing are the owners of the last look that are not among ids, the roster of this one.
func (t *breaker) missing(ids []string) (gone []string) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id, o := range t.owners {
		if o.listed && !there[id] {
			gone = append(gone, id)
		}
	}
	return gone
}

// lookedAt takes a complete look at the roster: the liveness of each owner there. byes are the
// silent ones that said goodbye. gone is the liveness of those that were there at the last look:
// off the roster and not by us is a goodbye that left nothing behind. But an owner that lives never
// leaves the roster: if one has, the roster was lost, and says nothing of the others either.
func (t *breaker) lookedAt(now time.Time, roster map[string]Liveness, byes map[string]bool, gone map[string]Liveness) {
	lost := false
	for _, liveness := range gone {
		lost = lost || liveness != Dead
	}
	for id, liveness := range gone {
		o := t.owners[id]
		if o == nil {
			continue
		}
		o.listed = false
		switch {
		case lost:
			t.judged(now, id, liveness, byes[id])
		case o.fell.IsZero():
			o.fell, o.bye = now, true
		default:
			o.bye = true
		}
	}
	for id, liveness := range roster {
		if !t.primed && t.owners[id] == nil {
			t.owners[id] = &seen{from: now.Add(-t.ttl), asked: now}
		}
		t.judged(now, id, liveness, byes[id])
		if o := t.owners[id]; o != nil {
			o.listed = true
		}
	}
	t.primed = true
	t.prune(now)
}

// judged takes one owner's liveness, found anywhere. Of an owner that nobody has seen alive it is
// not known when it fell, so its silence says nothing about today. What cannot be read changes
// nothing.
func (t *breaker) judged(now time.Time, id string, liveness Liveness, bye bool) {
	o := t.owners[id]
	if o == nil {
		if liveness == Alive {
			t.owners[id] = &seen{from: now, asked: now}
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
// counts who is there as having lived a TTL ago.
func (t *breaker) met(now time.Time, id string) {
	if t.owners[id] == nil && !t.whole {
		t.owners[id] = &seen{from: now.Add(-t.ttl), asked: now}
	}
}

// lives tells whether an owner was alive when it was last asked for.
func (t *breaker) lives(id string) bool {
	o := t.owners[id]
	return o != nil && o.fell.IsZero()
}

// swept notes that we took an owner off the roster ourselves, which is no goodbye.
func (t *breaker) swept(id string) {
	if o := t.owners[id]; o != nil {
		o.listed = false
	}
}

// tripped counts, and tells whether this is more silence than can be believed.
func (t *breaker) tripped(now time.Time) (fallen, known int, tripped bool) {
	ago := now.Add(-t.ttl)
	for _, o := range t.owners {
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

// prune forgets whoever fell longer than a TTL ago and whoever nobody asked for any more.
func (t *breaker) prune(now time.Time) {
	for id, o := range t.owners {
		if (!o.fell.IsZero() && now.Sub(o.fell) > t.ttl) || now.Sub(o.asked) > t.forget {
			delete(t.owners, id)
		}
	}
}
