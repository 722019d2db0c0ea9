package doubt

import (
	"fmt"
	"strconv"
	"strings"
)

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
