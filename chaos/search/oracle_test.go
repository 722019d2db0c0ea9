package search

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// judge is asked in the middle of a batch, behind its record and before its deletes.
func (f *fleet) judge(e eviction) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.swept += len(e.imeis)
	f.note("%s's %s evicts %d entries of %s (%s)", e.leader, e.sweep, len(e.imeis), e.owner, e.prefix)
	layout := guard.Layout{Prefix: e.prefix}
	beat := f.s.beat(layout.Heartbeat(e.owner))
	l := f.byID[e.owner]
	switch why := f.living(l, beat, now); {
	case f.wrong != "":
	case why != "":
		f.wrong = e.owner + " lives, and entries of it went: " + why
	case f.massFailure(layout, now):
		f.wrong = "most of the fleet fell silent together, and entries of " + e.owner + " went before a hold was raised for it"
	}
}

// living returns why an owner whose entries went could not be believed dead; "": it could.
func (f *fleet) living(l *life, beat, now time.Time) string {
	if l == nil || !l.running {
		return ""
	}
	if wiped := f.s.wipedAt(); now.Sub(beat) < ttl && beat.After(wiped) {
		return "it beat " + now.Sub(beat).String() + " ago"
	}
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	turned := l.line.turned
	if l.line.is == works && !turned.IsZero() && l.line.by != unnoticed && l.line.cutAt.Before(beat) && turned.Sub(beat) < ttl-interval {
		return "the server has turned it away since " + now.Sub(turned).String()
	}
	return ""
}

// massFailure reports whether most owners fell silent within a TTL, and no hold was raised for it.
// It counts only what a leader can observe: an owner is silent when it has missed a whole interval
// with all its retries.
func (f *fleet) massFailure(p guard.Layout, now time.Time) bool {
	const slack = 2 * time.Second
	f.s.mu.Lock()
	held, opened, wiped := f.s.held[p.Prefix], f.s.opened[p.Prefix], f.s.wiped
	beats := maps.Clone(f.s.beats)
	f.s.mu.Unlock()
	if !held.IsZero() && now.Sub(held) < 2*grace+slack || now.Sub(wiped) < 3*grace || f.byHand {
		return false
	}
	fallen, known := 0, 0
	for key, beat := range beats {
		id, is := strings.CutPrefix(key, p.Heartbeat(""))
		if !is {
			continue
		}
		l := f.byID[id]
		age := now.Sub(beat)
		left := l != nil && !l.running && !l.silent // with a goodbye: known for a TTL, and not fallen
		if l == nil || age > 2*ttl+slack || left && age > ttl+interval+slack {
			continue
		}
		known++
		if left {
			continue
		}
		ends := beat.Add(ttl)
		if age > 2*interval+slack && age < 2*ttl-slack && (ends.After(opened.Add(slack)) || now.Before(ends)) &&
			now.Sub(l.began) > ttl {
			fallen++
		}
	}
	return fallen >= 2 && 2*fallen > known
}

func (s *redisServer) wipedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wiped
}

// ledWithin is how long a partition may be without a leader while somebody reaches the server.
const ledWithin = 2*leaseTTL + leaseTTL*12/50 + leaseTTL/2

// checkLed looks whether somebody leads each partition.
func (f *fleet) checkLed() {
	able := f.s.reachable() && slices.ContainsFunc(f.running(), func(r *replica) bool {
		return r.sweeps && r.line.now() == works && time.Since(r.began) > interval && r.line.clean()
	})
	for k := range f.unled {
		switch since := f.unled[k]; {
		case !able || f.s.Exists(f.part(k).Lease()):
			f.unled[k] = time.Time{}
		case since.IsZero():
			f.unled[k] = time.Now()
		case time.Since(since) > ledWithin:
			f.found("nobody leads partition %d for %s, and somebody could", k, time.Since(since))
		}
	}
}

// reachable reports whether the server takes connections.
func (s *redisServer) reachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up && s.refuses == welcome
}

// clean reports whether the line has worked for long enough that nothing of its faults is left.
func (l *line) clean() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turned.IsZero() && time.Since(l.cutAt) > 2*interval
}

// unroutable returns the open sockets whose entry names another process. disputed are those whose
// device has a half-open socket elsewhere.
func (f *fleet) unroutable() (missing, clear, disputed []string) {
	f.mu.Lock()
	open := map[*device]int{}
	for _, s := range f.sockets {
		open[s.of]++
	}
	sockets := slices.Clone(f.devices)
	f.mu.Unlock()
	for _, d := range sockets {
		if d.socket == nil {
			clear = append(clear, d.imei+" is not connected")
			continue
		}
		switch is := f.s.HGet(f.partOf(d.imei).Registry(), d.imei); {
		case is == d.socket.at.id:
		case open[d] > 1:
			disputed = append(disputed, d.imei+" is at "+d.socket.at.id+" and half open elsewhere, entry "+is)
		case is == "":
			missing = append(missing, d.imei+" is at "+d.socket.at.id)
		default:
			clear = append(clear, d.imei+" is at "+d.socket.at.id+", entry "+is)
		}
	}
	return missing, clear, disputed
}

// left returns the entries without an open socket, and the places on rosters without a process.
func (f *fleet) left() (left []string) {
	f.mu.Lock()
	holds := map[string]bool{}
	for _, s := range f.sockets {
		holds[s.of.imei+" "+s.at.id] = true
	}
	runs := map[string]bool{}
	f.mu.Unlock()
	for _, r := range f.running() {
		runs[r.id] = true
	}
	for k := range f.partitions {
		p := f.part(k)
		imeis, _ := f.s.HKeys(p.Registry())
		for _, imei := range imeis {
			if is := f.s.HGet(p.Registry(), imei); !holds[imei+" "+is] {
				left = append(left, "entry "+imei+" of "+is)
			}
		}
		ids, _ := f.s.SMembers(p.Roster())
		for _, id := range ids {
			if !runs[id] {
				left = append(left, "place on the roster of "+id)
			}
		}
	}
	return left
}
