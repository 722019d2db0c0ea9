package doubt

import (
	"fmt"
	"strconv"
	"strings"
)

// Doubt is what speaks against sweeping an owner.
type Doubt string

// The doubts, as status, metrics and the guard's answers name them.
const (
	None    Doubt = ""        // its entries may go
	Held    Doubt = "held"    // Redis has not been heard for long enough
	Alive   Doubt = "alive"   // it may have a beat in time
	Refused Doubt = "refused" // the server turns clients away
	Most    Doubt = "most"    // most others were off with it
)

// bound ends a doubt that anybody can cause, in GRACE.
const bound = 10

// Verdict returns what speaks against sweeping an owner without a heartbeat. since is when the
// server was first heard without a gap, refused when it last turned somebody away; most is
// Fleet.Together.
func (r Record) Verdict(now, since, refused int64, most bool) Doubt {
	quiet := now - max(r.Fell(), since)
	if r.State == Plain {
		quiet -= r.Due // one beat may have been evicted before it was read
	}
	switch {
	case r.State == Bye:
	case r.Fell() > now:
		return Alive // its heartbeat was evicted or deleted
	case quiet < bound*r.Grace() && now-refused < r.Grace():
		return Refused
	case quiet < r.Grace() && most:
		return Most
	}
	if now-since < r.Grace() {
		return Held // last: it may be over before the guard decides, and the others not
	}
	return None
}

// Ends returns when a doubt that Verdict has given ends at the latest; None: the silence.
func (r Record) Ends(since int64, why Doubt) int64 {
	at := max(r.Fell(), since)
	if r.State == Plain && why != None {
		at += r.Due
	}
	switch why {
	case Most:
		at += r.Grace()
	case Refused:
		at += bound * r.Grace()
	}
	return at
}

// Takes reports whether an owner that holds a device's socket may overwrite the entry that names
// this one, which has no heartbeat. Doubts about the many do not matter here: if this owner lived,
// it would have beaten since Redis is heard again. A Plain owner's record proves nothing while no
// leader reads.
func (r Record) Takes(now, since int64) bool {
	return !r.none() && r.State != Plain && now-since >= r.Due && (r.State == Bye || r.Fell() <= now)
}

// Fleet is one reading of all records.
type Fleet map[string]Record

// Together reports whether most holders were off at a time when id was off too.
func (f Fleet) Together(id string, now, since int64) bool {
	x, off, known := f[id], 0, 0
	heard := x.Last
	if x.State == Plain { // a blind leader may have moved that
		heard -= x.TTL
	}
	for other, y := range f {
		// y may beat less often than x; then it is not known to be on until it has beaten.
		silent := y.Last+y.Due <= now || y.Last < x.Last+x.Due
		switch {
		case y.Back > heard:
			off++ // it was off while x was off, whatever it is now
		case other != id && (y.State == Idle || y.State == Bye):
			continue // nobody misses it
		case y.Born >= heard && !silent && other != id:
			continue // it came later, and proves nothing about what hit x
		case silent && max(y.Fell(), since+y.Due)+x.Grace() < max(heard+x.TTL, since):
			continue // dead long before x: it could have beaten since the server is heard
		case silent:
			off++
		}
		known++
	}
	return off >= 2 && 2*off > known
}

// Spent returns those whose records no verdict on another needs any more. The leader deletes them,
// unless they are on the roster or have entries.
func (f Fleet) Spent(now, since int64) (ids []string) {
	longest := int64(0)
	for _, r := range f {
		longest = max(longest, r.Grace())
	}
	for id, r := range f {
		if max(r.Fell(), since+r.Due)+2*longest < now {
			ids = append(ids, id)
		}
	}
	return ids
}

// State is what an owner was at its last write.
type State byte

// The states, as records have them.
const (
	Holds State = 'h' // it holds a claim, or writes an entry now
	Idle  State = 'i' // it holds nothing: nobody misses it
	Bye   State = 'b' // it left in good order
	// Plain owners write a heartbeat and no record. The leader keeps one for them.
	Plain State = 'p'
)

// Record is an owner's last proof of life. The zero Record stands for none.
type Record struct {
	Last  int64 // the last proof of life
	TTL   int64 // of the owner's heartbeat
	Due   int64 // how long after Last the next one is overdue
	Born  int64 // since when it holds; of an idle owner without meaning
	Back  int64 // when it was last back after it had been off while it held
	State State
}

// Own is an owner's settings.
type Own struct{ Interval, TTL int64 }

// Due is an interval, the retries of one lost beat, and what beats may be late.
func (o Own) Due() int64 { return o.Interval + min(o.Interval/2, 2000) + o.Interval/5 }

// String returns last/ttl/due/born/back/state.
func (r Record) String() string {
	return fmt.Sprintf("%d/%d/%d/%d/%d/%c", r.Last, r.TTL, r.Due, r.Born, r.Back, r.State)
}

// Parse returns the record in a field of the hash, or none if Rollcall cannot have written it.
func Parse(text string) (r Record) {
	part := strings.SplitN(text, "/", 7)
	if len(text) > 128 || len(part) != 6 || len(part[5]) != 1 || !strings.Contains("hibp", part[5]) {
		return Record{}
	}
	for i, into := range []*int64{&r.Last, &r.TTL, &r.Due, &r.Born, &r.Back} {
		n, err := strconv.ParseUint(part[i], 10, 50) // what Lua can count
		if err != nil {
			return Record{}
		}
		*into = int64(n)
	}
	if r.State = State(part[5][0]); r.none() {
		return Record{}
	}
	return r
}

func (r Record) none() bool { return r.TTL == 0 }

// Grace is for how long Redis must have been heard before the owner's silence means anything.
func (r Record) Grace() int64 { return r.TTL + 2000 }

// Fell returns when the heartbeat ended, if it had its time.
func (r Record) Fell() int64 { return r.Last + r.TTL }

// Proves returns the record after a proof of life at now. A goodbye is one too.
func (r Record) Proves(now int64, own Own, is State) Record {
	switch {
	case r.none() || r.State == Idle || r.State == Bye: // nobody missed it
		r.Born = now
	case now-r.Last >= max(r.Due, r.TTL-r.Due): // may silence the first that were hit
		r.Back = now
	}
	r.Last, r.TTL, r.Due, r.State = now, own.TTL, own.Due(), is
	return r
}

// Seen returns the record after a leader's reading, which writes it back if it differs. left is
// what the heartbeat of a Plain owner, or of one without a record, has left to live, 0 if it is
// gone. own are the settings of the fleet. blind: the reading before this one is over three seconds
// old, or unknown.
//
// A blind leader may have missed a beat of a plain owner whose heartbeat was then evicted, and who
// has no record may have just lost it: then the next beat must be missing too.
func (r Record) Seen(now, left int64, own Own, blind bool) Record {
	r.Last = min(r.Last, now) // the clock went back, or somebody else wrote this
	if !r.none() && r.State != Plain {
		return r
	}
	beat := min(now, now+left-own.TTL) // of a plain owner with the TTL of the fleet
	met := r.none()
	if met {
		r = Record{TTL: own.TTL, Due: own.Due(), Born: now, State: Plain}
	}
	switch {
	case left > 0 && met:
		r.Last = beat
	case left > 0 && beat > r.Last:
		return r.Proves(beat, own, Plain)
	case left <= 0 && (met || blind):
		r.Last = max(r.Last, now-r.TTL+r.Due)
	}
	return r
}
