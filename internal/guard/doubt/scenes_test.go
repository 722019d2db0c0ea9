package doubt_test

import "slices"

// Scenes that random steps rarely come to.

func stage(seed uint64, r rule, scene func(w *world)) *world {
	w := newWorld(seed, r)
	scene(w)
	w.advance(300 * sec)
	return w
}

// fleet is a fleet that has been well for long.
func (w *world) fleet(n int) []*owner {
	for range n {
		w.add(true, false)
	}
	w.advance(700*sec + w.upTo(common.Interval))
	return w.owners
}

// bothDie: the second one dies when the first is gone, and is alone.
func bothDie(w *world) {
	w.kill(w.fleet(3)[:1])
	w.advance(120 * sec)
	w.kill(w.owners[1:2])
}

// deployed: one of ten that have just replaced ten dies.
func deployed(w *world) {
	old := slices.Clone(w.fleet(10))
	for range old {
		w.add(true, false)
	}
	w.advance(common.Interval)
	for _, o := range old {
		w.leave(o)
	}
	w.kill(w.owners[10:11])
}

// idleDieToo: one that holds dies with four that do not.
func idleDieToo(w *world) {
	for range 4 {
		w.add(false, false)
	}
	w.kill(w.fleet(3)[:5])
}

// idleTakeOver: devices of those that are cut off connect to those that held none.
func idleTakeOver(w *world) {
	for range 3 {
		w.add(false, false)
	}
	w.cutOff(w.fleet(3)[3:])
	w.advance(10 * sec)
	for _, o := range w.owners[:3] {
		w.takeSockets(o)
	}
}

// backAndGone: three of four are cut off; when the first has fallen, the others are back, and
// leave.
func backAndGone(w *world) {
	off := w.fleet(4)[:3]
	w.cutOff(off)
	for !slices.ContainsFunc(off, func(o *owner) bool { return o.fell > 0 }) {
		w.second()
	}
	for _, o := range off {
		if o.fell == 0 {
			o.mended = w.t
			w.leave(o)
		}
	}
}

// unread: nobody has read the last beat of a plain owner when most are cut off.
func unread(w *world) {
	x := w.add(true, true)
	w.fleet(2)
	for x.next > w.t+sec {
		w.second()
	}
	w.lead = w.t + sec + 1 // no reading
	w.second()
	delete(w.heartbeat, x.name)
	w.cutOff(w.owners)
}

// slowly: the first is cut off before its beat, the others 15 s later, behind theirs.
func slowly(w *world) {
	all := w.fleet(5)
	for all[0].next > w.t+sec {
		w.second()
	}
	w.cutOff(all)
	for _, o := range all[1:] {
		o.cut, o.next = w.t+15*sec, w.t+14*sec
	}
}

// firstStaysOff: of ten that are cut off all but the first to fall silent are back then.
func firstStaysOff(w *world) {
	off := w.fleet(11)[:10]
	w.cutOff(off)
	for !slices.ContainsFunc(off, func(o *owner) bool { return o.fell > 0 }) {
		w.second()
	}
	for _, o := range off {
		if o.fell == 0 {
			o.mended = w.t
		}
	}
}

// leaps: the clock goes back while most are cut off; one beats once more.
func leaps(w *world) {
	all := w.fleet(3)
	w.cutOff(all)
	all[0].cut, all[0].next = w.t+15*sec, w.t+10*sec
	w.advance(5 * sec)
	w.skew -= 200 * sec
}

// blindly: a new leader missed two beats of a plain owner, whose heartbeat was then evicted, and
// whose next beat is late.
func blindly(w *world) {
	x := w.add(true, true)
	w.fleet(2)
	for was := x.beat; x.beat == was; {
		w.second()
	}
	w.read, w.lead, w.scan = 0, w.t+80*sec, w.t+91*sec
	w.advance(79 * sec)
	delete(w.heartbeat, x.name)
	x.next = x.beat + 36*sec
}
