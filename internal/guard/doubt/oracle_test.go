package doubt_test

import (
	"fmt"
	"slices"

	. "github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// The oracle knows the true state of the world: who lives, who holds, who can reach Redis, who was
// hit by the same event. It has none of the rule's terms. What it demands:
//
//   - able: an owner that can beat is never swept;
//   - most: an owner that fell silent while most of those hit with it were off is not swept for a
//     GRACE;
//   - refused: one that Redis itself refuses is not swept for ten GRACE;
//   - theft: nobody takes over from an owner that can beat;
//   - prompt: one of a clear minority that dies in calm is swept as soon as its heartbeat ends;
//   - slow: whoever dies in calm is swept within two GRACE of that;
//   - kept: whoever dies is swept within eleven GRACE, whatever else happens.

// promise is what is true of an owner at the instant at which its silence is as long as its TTL.
type promise struct {
	withMost bool // most of those hit with it are still off
	alone    bool // all is calm, and a clear majority has been able to beat all the time
}

func (w *world) breach(kind string, o *owner, format string, args ...any) {
	if len(w.found) == 0 {
		w.first = len(w.log)
	}
	w.note("%s: %s %s", kind, o.name, fmt.Sprintf(format, args...))
	w.found = append(w.found, kind)
	now := w.server()
	w.note("heard since %d, refused %d", w.since-now, w.turned-now)
	for _, y := range w.owners { // what the rule knows | what is true
		r := w.records[y.name]
		w.note("  %s %c last %d born %d back %d | alive %v holds %v can %v plain %v same hit %v beat %d able %d", y.name, max(r.State, '-'),
			r.Last-now, r.Born-now, r.Back-now, y.alive, y.holds, w.can(y), y.plain, y.hit == o.hit, y.beat-w.t, y.able-w.t)
	}
}

// on reports whether an owner holds and beats. It is able from the end of the second in which it
// may have beaten first.
func (w *world) on(o *owner) bool { return o.holds && w.can(o) && o.beat > o.able-sec }

func (w *world) promised(o *owner) promise {
	return promise{withMost: w.withMost(o), alone: !o.alive && !o.left && !o.plain && w.alone(o)}
}

func (w *world) withMost(o *owner) bool {
	if o.hit == nil || !o.hit.most || !slices.Contains(o.hit.base, o) {
		return false
	}
	off, known := 0, 0
	for _, y := range w.owners {
		switch was := slices.Contains(o.hit.base, y); {
		case w.records[y.name].State == Plain && w.setBack >= o.beat: // it may look alive
		case y.left && was, !was && !(y.holds && y.holding <= max(o.hit.at, o.cut) && w.seems(y, o.hit.at)):
			continue // or an earlier hit had it off
		case y.plain && w.records[y.name] == (Record{}): // no full scan has met it
			continue
		case y.own != o.own && w.t-y.beat < y.own.Due(): // nobody can know that it is off
		case was && y.hit == o.hit && !w.can(y):
			off++
		}
		known++
	}
	return off >= 2 && 2*off > known
}

// seems reports whether an owner is on for all that anybody can know who has heard of it since.
func (w *world) seems(o *owner, since int64) bool {
	return w.can(o) || o.beat > since && w.t-o.beat < o.own.Due()
}

// alone is asked of the dead. Whoever may have been off counts against it.
func (w *world) alone(o *owner) bool {
	before := o.beat - 2*o.own.TTL
	if w.t-w.trouble < 4*o.grace() || w.trouble > before || w.unsure > before || w.t-w.refusal < 2*o.grace() {
		return false
	}
	off, known := 0, 0
	for _, y := range w.owners {
		switch {
		case y.own != common:
			return false
		case y.idle > 0 && y.idle < before:
		case !y.alive && !y.left && y.died < o.beat-o.grace():
		case !y.alive && !y.left || y.off > o.beat-common.Interval, y.plain && w.heartbeat[y.name] == 0:
			off++
		case y.left:
		case y.holds && y.holding < o.beat-2*sec && !y.plain:
			known++
		}
	}
	return off < 2 || 2*off <= off+known
}

// swept judges that an owner's entries went.
func (w *world) swept(o *owner) {
	w.note("swept %s (alive %v, silent for %d ms)", o.name, o.alive, w.t-o.beat)
	if !o.alive {
		w.gone = append(w.gone, w.t-o.died)
		w.count["dead swept"]++
		return
	}
	if !o.holds || o.beat < o.started {
		return
	}
	w.count["living swept"]++
	fell := o.fell
	if fell == 0 {
		fell = w.t
	}
	switch {
	case w.able(o):
		w.breach("able", o, "can beat, and did %d ms ago", w.t-o.beat)
	case w.t-o.told <= o.own.Interval && !w.noInfo && w.t < fell+10*o.grace()-6*sec:
		w.breach("refused", o, "is refused by Redis, silent for %d ms", w.t-o.beat)
	case o.promise.withMost && w.t < fell+o.grace()-6*sec && (!w.mixed && w.setBack < o.beat || w.withMost(o)):
		w.breach("most", o, "fell %d ms ago with most others, %d held", w.t-fell, len(o.hit.base))
	}
}

// able reports whether an owner has been able to beat for longer than until its next try.
func (w *world) able(o *owner) bool {
	return o.alive && w.can(o) && w.t-o.able > retry+sec && !(o.plain && o.unread == o.beat)
}

func (w *world) takes(s int64) {
	for id, r := range w.records {
		if o := w.by[id]; w.entries[id] && w.heartbeat[id] == 0 && o.holds && w.able(o) && r.Takes(s, w.since) {
			w.breach("theft", o, "can beat, and did %d ms ago", w.t-o.beat)
		}
	}
}

// late looks for the dead whose entries stand.
func (w *world) late() {
	for _, o := range w.owners {
		if o.alive || o.reported || o.fell == 0 || !w.entries[o.name] {
			continue
		}
		from := max(o.fell, o.died, w.trouble)
		slack, g := 15*sec, max(o.grace(), common.TTL+2*sec)
		if o.plain || w.records[o.name].State == Plain { // found by a full scan only
			slack += scanEach + common.TTL + common.Due()
		}
		kind := ""
		switch d := w.t - from; {
		case d > 11*g+slack:
			kind = "kept"
		case d > 2*g+slack && w.t-w.refusal > 12*g:
			kind = "slow"
		case o.promise.alone && w.t > o.fell+4*sec && w.trouble < o.fell && w.refusal < o.fell && w.unsure < o.fell:
			kind = "prompt"
		}
		if kind != "" {
			w.breach(kind, o, "is dead for %d ms", w.t-o.died)
			o.reported = true
		}
	}
}
