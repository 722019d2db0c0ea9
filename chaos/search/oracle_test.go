package search

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// The oracle knows which sockets are open, which processes run and reach the server, what the
// server did to them, and what hit several of them at once. It has none of the code's terms.
// Nothing of a process that runs is deleted
//
//   - while it can reach the server, or its last beat landed less than a TTL ago: a missing key
//     condemns nothing;
//   - for ten GRACE, while the server itself turns it away;
//   - for a GRACE, if most of those hit with it were off when its silence was as long as its TTL.
//
// Both count from its last record, which writes beside beats renew only when it is overdue.

// slack is what a script may be early by the oracle's clock.
const slack = 2 * time.Second

// hit is what cut off, killed or refused several replicas at once.
type hit struct {
	at   time.Time
	base [][]*life // by partition: they held entries, and beat
	most []bool    // by partition: more than half of those were hit
}

// hits is called before it happens.
func (f *fleet) hits(all []*replica) {
	h := &hit{at: time.Now(), base: make([][]*life, f.partitions), most: make([]bool, f.partitions)}
	for k := range f.partitions {
		holds, n := f.holders(k), 0
		for _, r := range f.running() {
			if beat := f.s.beat(f.part(k).Heartbeat(r.id)); holds[r.life] && f.can(r.life) && r.hit == nil && !beat.Before(r.able) {
				h.base[k] = append(h.base[k], r.life)
			}
		}
		for _, r := range all {
			if slices.Contains(h.base[k], r.life) {
				n++
			}
		}
		h.most[k] = n >= 2 && 2*n > len(h.base[k])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range all {
		r.hit = h
	}
}

// holders returns who has a socket of a device of a partition.
func (f *fleet) holders(k int) map[*life]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	holds := map[*life]bool{}
	for _, s := range f.sockets {
		if guard.PartitionOf(s.of.imei, f.partitions) == k {
			holds[s.at] = true
		}
	}
	return holds
}

// can reports whether a process can reach the server to which the name leads.
func (f *fleet) can(l *life) bool {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	return l.running && l.line.is == works && l.line.turned.IsZero() && f.s.isUp()
}

// observe keeps, once a second, what the oracle must know of the past.
func (f *fleet) observe() {
	now := time.Now()
	for _, l := range f.byID {
		can := f.can(l)
		if !can {
			l.able = time.Time{}
		} else if l.able.IsZero() {
			l.able = now
		}
		for k := range f.partitions {
			beat := f.s.beat(f.part(k).Heartbeat(l.id))
			if l.hit != nil && can && !beat.Before(l.able) && beat.After(l.hit.at) {
				l.hit = nil
			}
			if now.Sub(beat) >= ttl && !beat.Equal(l.fell[k]) {
				l.fell[k] = beat
				l.spare[k] = f.withMost(l, k)
			}
		}
	}
}

// withMost reports whether most of those that held and were hit with it are still off.
func (f *fleet) withMost(l *life, k int) bool {
	h := l.hit
	if h == nil || !h.most[k] || !slices.Contains(h.base[k], l) {
		return false
	}
	off, known, holds := 0, 0, f.holders(k)
	for _, y := range f.byID {
		switch was := slices.Contains(h.base[k], y); {
		case was && y.left, !was && !(holds[y] && f.can(y)):
			continue
		case was && y.hit == h && !f.can(y):
			off++
		}
		known++
	}
	return off >= 2 && 2*off > known
}

// judge is asked in the middle of a batch, behind its record and before its deletes.
func (f *fleet) judge(s *redisServer, e eviction) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("%s's %s evicts %d entries of %s (%s%s)", e.leader, e.sweep, len(e.imeis), e.owner, e.prefix, s.run)
	if s != f.s {
		return // whoever still reads the former primary
	}
	f.swept += len(e.imeis)
	if l := f.byID[e.owner]; f.wrong == "" && l != nil && l.running {
		if why := f.living(l, e.prefix); why != "" {
			f.wrong = e.owner + " lives, and entries of it went: " + why
		}
	}
}

// living returns what promise was broken when entries of a running process went; "": none was.
func (f *fleet) living(l *life, prefix string) string {
	now, beat := time.Now(), f.s.beat(guard.Layout{Prefix: prefix}.Heartbeat(l.id))
	f.s.mu.Lock()
	forged, mute := f.s.forged, f.s.mute
	f.s.mu.Unlock()
	l.line.mu.Lock()
	told, by, is, cutAt := l.line.told, l.line.by, l.line.is, l.line.cutAt
	l.line.mu.Unlock()
	k := 0
	for f.part(k).Prefix != prefix {
		k++
	}
	silent := now.Sub(beat)
	recorded := now.Sub(f.s.record(guard.Layout{Prefix: prefix}.Beats(), l.id))
	switch {
	case beat.Before(l.began), beat.Before(forged): // of an earlier process of that id; anybody can forge
		return ""
	case silent < ttl:
		return "it beat " + silent.String() + " ago"
	case !l.able.IsZero() && now.Sub(l.able) > 2*interval:
		return "it can reach the server for " + now.Sub(l.able).String()
	case is == works && !mute && by != unnoticed && now.Sub(told) <= interval+slack && cutAt.Before(beat) && recorded < ttl+10*grace-slack:
		return "the server turns it away (" + by.String() + "), last " + now.Sub(told).String() + " ago"
	case l.fell[k].Equal(beat) && l.spare[k] && recorded < ttl+grace-slack:
		return "it is silent for " + silent.String() + ", with most of those that were hit with it"
	}
	return ""
}

func (s *redisServer) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
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

// unroutable returns the open sockets whose entry names another process.
func (f *fleet) unroutable() (missing, clear []string) {
	for _, d := range f.devices {
		if d.socket == nil {
			clear = append(clear, d.imei+" is not connected")
			continue
		}
		switch is := f.s.HGet(f.partOf(d.imei).Registry(), d.imei); {
		case is == d.socket.at.id:
		case is == "":
			missing = append(missing, d.imei+" is at "+d.socket.at.id)
		case f.forged && (f.dry || f.paused) && !f.runs(is) && !f.proves(f.partOf(d.imei), is):
			// Only a sweep, or the device's next handshake, makes up for a record that is gone.
		default:
			clear = append(clear, d.imei+" is at "+d.socket.at.id+", entry "+is)
		}
	}
	return missing, clear
}

// runs reports whether a process of an instance id runs.
func (f *fleet) runs(id string) bool {
	return slices.ContainsFunc(f.running(), func(r *replica) bool { return r.id == id })
}

// proves reports whether an instance's own record is there. One that a leader keeps ends in "p".
func (f *fleet) proves(p guard.Layout, id string) bool {
	record := f.s.HGet(p.Beats(), id)
	return record != "" && !strings.HasSuffix(record, "/p")
}

// left returns the entries without an open socket, and the places on rosters without a process.
func (f *fleet) left() (left []string) {
	f.mu.Lock()
	holds := map[string]bool{}
	for _, s := range f.sockets {
		holds[s.of.imei+" "+s.at.id] = true
	}
	f.mu.Unlock()
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
			if !f.runs(id) {
				left = append(left, "place on the roster of "+id)
			}
		}
	}
	return left
}

// settle ends every fault, and looks whether the registry becomes the truth. Sweeping stays paused
// or dry half of the time.
func (f *fleet) settle(a, _ int) {
	f.letIn(0, 0)
	f.mendAll(0, 0)
	f.cure()
	f.evicting = time.Time{}
	if a%3 > 0 {
		f.strange = time.Time{}
	} else if time.Now().Before(f.strange) {
		f.strange = time.Now().Add(time.Hour)
	}
	for _, r := range f.replicas {
		if !f.isUp(r) {
			f.start(r)
		}
	}
	if f.paused && a%2 == 1 {
		f.pause(0, 0)
	}
	f.say("all is quiet")
	begun, since := time.Now(), map[string]time.Time{} // since when there is no entry
	for _, d := range f.devices {
		if d.away.After(begun) {
			begun = d.away
		}
	}
	for {
		f.pass(time.Second)
		missing, clear := f.unroutable()
		maps.DeleteFunc(since, func(imei string, _ time.Time) bool { return !slices.Contains(missing, imei) })
		var late []string
		for _, imei := range missing {
			if since[imei].IsZero() {
				since[imei] = time.Now()
			}
			if time.Since(since[imei]) > f.missing() {
				late = append(late, imei)
			}
		}
		var left []string
		if !f.paused && !f.dry {
			left = f.left()
		}
		if len(missing)+len(clear)+len(left) == 0 {
			break
		}
		took := time.Since(begun)
		switch within := f.bound(); {
		case len(late) > 0:
			f.found("no entry for more than %s of quiet: %s", f.missing(), late)
		case len(clear) > 0 && took > routableWithin:
			f.found("not routable after %s of quiet: %s", took, clear)
		case len(left) > 0 && took > within:
			f.found("left after %s of quiet: %s", took, left)
		}
	}
	f.Count("times quiet", 1)
	f.byHand, f.unseen = false, false
	f.say("the registry is the truth, after %s", time.Since(begun))
}

func (f *fleet) missing() time.Duration {
	if f.byHand || f.unseen {
		return routableWithin
	}
	return missingWithin
}

func (f *fleet) bound() time.Duration {
	within := goneWithin
	if f.byHand || !f.index {
		within = scanWithin
	}
	if time.Now().Before(f.strange) {
		within += 10 * grace
	}
	return within
}
