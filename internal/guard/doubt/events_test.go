package doubt_test

import "slices"

const always = 1 << 40

func (w *world) living(is func(*owner) bool) (all []*owner) {
	for _, o := range w.owners {
		if o.alive && is(o) {
			all = append(all, o)
		}
	}
	return all
}

func anybody(*owner) bool { return true }

func holder(o *owner) bool { return o.holds }

func (w *world) pick(all []*owner, n int64) []*owner {
	all = slices.Clone(all)
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(int(n), len(all))]
}

// any picks any number.
func (w *world) any(all []*owner) []*owner { return w.pick(all, 1+w.upTo(int64(len(all)))) }

func (w *world) most(all []*owner) []*owner { return w.pick(all, int64(len(all)*2/3+1)) }

// hits cuts off or kills several at once, within spread. lasting returns 0: killed.
func (w *world) hits(all []*owner, spread int64, lasting func() int64) {
	h := &hit{at: w.t, base: w.living(func(o *owner) bool { return w.on(o) && o.hit == nil })}
	hit := 0
	for _, o := range all {
		if slices.Contains(h.base, o) {
			hit++
		}
		o.hit = h
		if d := lasting(); d == 0 {
			o.alive, o.died = false, w.t
		} else {
			o.cut, o.mended = w.t+w.upTo(spread), max(o.mended, w.t+spread+d)
		}
	}
	h.most = hit >= 2 && 2*hit > len(h.base)
	w.note("hit %d of %d holders", hit, len(h.base))
}

func (w *world) kill(all []*owner) { w.hits(all, 0, func() int64 { return 0 }) }

func (w *world) cutOff(all []*owner) { w.hits(all, 0, func() int64 { return always }) }

func (w *world) mend() {
	for _, o := range w.owners {
		o.mended = min(o.mended, w.t)
	}
	w.note("mended")
}

func (w *world) takeSockets(o *owner) {
	if !o.holds {
		o.holds, o.holding = true, w.t
	}
	if w.can(o) {
		w.try(o)
	}
}

// starts starts the dead again under their ids.
func (w *world) starts(o *owner, holds bool) {
	o.alive, o.left, o.able, o.mended, o.refused, o.reported = true, false, never, 0, 0, false
	o.holds, o.holding = holds || o.plain, w.t // a plain one that held counts as holding while it lives
	o.started, o.next = w.t, w.t+1
}

func (w *world) leaderDies() {
	w.read, w.scan, w.pending, w.lead = 0, 0, nil, w.t+lease+sec*w.upTo(3)
}

// act is one random event, and some time.
func (w *world) act(size int) {
	all := w.living(anybody)
	span := [][2]int64{{10, 50}, {60, 95}, {60, 95}, {90, 220}, {300, 2000}}[w.rng.IntN(5)]
	draw := func() int64 { return sec * (span[0] + w.upTo(span[1]-span[0])) }
	same, each := draw(), w.some(1, 4)
	lasting := func() int64 {
		if each {
			return draw()
		}
		return same
	}
	spread := w.upTo(1) * w.upTo(15*sec)
	switch x := w.rng.IntN(104); {
	case x < 14:
		w.hits(w.any(all), spread, lasting)
	case x < 20:
		w.hits(w.most(w.living(holder)), spread, lasting)
	case x < 24: // cut and killed together
		w.hits(w.any(all), 0, func() int64 { return w.upTo(1) * lasting() })
	case x < 27:
		w.kill(w.any(all))
	case x < 30:
		w.kill(w.pick(all, 1))
	case x < 36: // a deployment: new ones come, old ones say goodbye
		old := w.any(all)
		for range old {
			w.add(true, false)
		}
		w.advance(w.upTo(40 * sec))
		for _, o := range old {
			w.leave(o)
		}
		if w.some(1, 2) {
			w.advance(w.upTo(common.TTL))
			w.hits(w.most(w.living(holder)), spread, lasting)
		} else if w.some(1, 2) {
			w.advance(w.upTo(common.TTL))
			w.kill(w.pick(w.living(holder), 1))
		}
	case x < 40:
		for range 1 + w.rng.IntN(size+1) {
			w.add(w.some(1, 3), w.some(1, 8))
		}
	case x < 42:
		for _, o := range w.pick(w.living(func(o *owner) bool { return !o.holds }), 1+w.upTo(2)) {
			w.takeSockets(o)
		}
	case x < 44: // all devices of some move to others
		for _, o := range w.pick(w.living(func(o *owner) bool { return o.holds && !o.plain }), 1+w.upTo(1)) {
			o.holds = false
			delete(w.entries, o.name)
		}
	case x < 48:
		w.leaderDies()
		if w.hard && w.some(1, 3) { // a term without a reader, while Redis is heard
			w.lead += w.upTo(300 * sec)
		}
	case x < 51:
		w.run++
	case x < 54:
		w.down = w.t + 5*sec + w.upTo(200*sec)
	case x < 57:
		w.evicts = w.t + 30*sec + w.upTo(200*sec)
	case x < 60:
		w.each, w.strangers = sec*(1+w.upTo(90)), w.t+w.upTo(3000*sec)
	case x < 64:
		until := w.t + draw()
		for _, o := range w.any(all) {
			o.refused = until
		}
	case x < 66:
		if w.some(1, 3) {
			w.hits(w.most(w.living(holder)), spread, lasting)
			w.advance(w.upTo(40 * sec))
		}
		leap := sec * []int64{-200, -31, -5, 5, 31, 100, 400}[w.rng.IntN(7)]
		w.skew += leap
		w.trouble = max(w.trouble, w.t)
		if leap < 0 { // keys live longer by that
			w.setBack = max(w.setBack, w.t) - leap
			w.trouble = w.setBack
		}
		for _, o := range w.owners { // its heartbeat may have ended by that
			o.able = max(o.able, w.t)
		}
	case x < 69: // the dead are back under their ids, at once or later
		for _, o := range w.owners {
			if !o.alive && w.some(1, 2) {
				w.starts(o, w.some(1, 2))
			}
		}
	case x < 71: // a deployment that keeps the ids: each is killed, and starts without sockets
		again := w.any(all)
		w.kill(again)
		for _, o := range again {
			w.starts(o, false)
			w.advance(w.upTo(5 * sec))
		}
		w.advance(w.upTo(40 * sec))
		for _, o := range again {
			w.takeSockets(o)
		}
	case x < 76: // late beats
		for _, o := range w.pick(all, 1+w.upTo(1)) {
			o.next = max(o.next, o.beat+o.own.Interval+w.upTo(o.own.Due()-o.own.Interval-200))
		}
	case x < 78:
		if !w.mixed { // else nobody knows their settings until they beat
			clear(w.records)
			w.trouble, w.unsure = w.t, w.t
		}
	case x < 79:
		w.since, w.ticked, w.turned = 0, 0, never
	case x < 81:
		w.deaf = w.t + 5*sec + w.upTo(150*sec)
		w.leaderDies()
	case x < 83:
		w.full = w.t + w.upTo(300*sec)
	case x < 95: // waves: all are back, and soon most are off again
		w.hits(w.most(all), spread, func() int64 { return sec * (62 + w.upTo(30)) })
		w.advance(sec * (60 + w.upTo(60)))
		w.mend()
		w.advance(2*sec + w.upTo(184*sec))
		w.hits(w.most(w.living(anybody)), spread, lasting)
	default:
		w.mend()
	}
	d := sec + w.upTo(30*sec)
	if w.some(1, 6) {
		d = w.upTo(276 * sec)
	}
	if w.some(1, 100) {
		d += 1100 * sec
	}
	w.advance(d)
	w.keep(size)
}

// keep forgets the dead, and keeps the fleet at about its size.
func (w *world) keep(size int) {
	w.owners = slices.DeleteFunc(w.owners, func(o *owner) bool {
		return !o.alive && !w.entries[o.name] && !w.roster[o.name] && w.heartbeat[o.name] == 0 && w.t-o.died > 400*sec
	})
	if n := len(w.living(anybody)); n < size {
		for range 1 + w.rng.IntN(size-n) {
			w.add(!w.some(1, 5), w.some(1, 10))
		}
	} else if n > 3*size+3 {
		for _, o := range w.pick(w.living(anybody), int64(n-size)) {
			w.leave(o)
		}
	}
}
