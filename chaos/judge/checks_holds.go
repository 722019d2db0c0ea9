package judge

import (
	"slices"
	"time"
)

// c4Holds is C4 for what the witness and the records may have missed, by the server's own history
// and with hindsight:
//
//   - the server's counters restarted (Facts.Restarts), which loses everything they had counted;
//   - most holders were off while the owner that is swept was off too, and it was swept within a
//     GRACE of its end.
type c4Holds struct {
	passive
	owners map[string]*life
	swept  []sweep
}

// life is when an owner beat, and when it left in good order.
type life struct {
	beats []time.Time
	bye   time.Time // zero: it has beaten since, or fell silent
	freed bool      // its heartbeat was deleted by hand: it may well be alive
}

// sweep is the first eviction of an owner's entries since its last beat.
type sweep struct {
	m       moment
	owner   string
	last    time.Time
	hold    time.Time
	holders []string
}

func newC4Holds() *c4Holds { return &c4Holds{owners: make(map[string]*life)} }

// looked is how old a leader's last look at its owners may be.
const looked = 2500 * time.Millisecond

func (c *c4Holds) before(m *moment) {
	if id, _ := m.beats(); id != "" {
		l := c.owners[id]
		if l == nil {
			l = &life{}
			c.owners[id] = l
		}
		l.beats, l.bye, l.freed = append(l.beats, m.now), time.Time{}, false
	}
	if m.command[0] == "DEL" || m.command[0] == "UNLINK" {
		for _, key := range m.command[1:] {
			if id, is := m.heartbeatOf(key); is && m.state.Exists(key) && c.owners[id] != nil {
				c.ends(m, id)
			}
		}
	}
	if m.evicts() {
		c.sweeps(m)
	}
}

// ends takes three causes: expiry, a goodbye, or Redis' need of memory.
func (c *c4Holds) ends(m *moment, id string) {
	end, ends := m.state.Expiry[m.facts.Layout.Heartbeat(id)]
	if expired := ends && !end.After(m.until); !expired && len(m.event.Commands) > 1 {
		c.owners[id].bye = m.now
	}
}

func (c *c4Holds) sweeps(m *moment) {
	since, _ := m.witness("since")
	for _, r := range m.facts.Restarts {
		if m.now.After(r.Until) && time.UnixMilli(since).Before(r.From.Truncate(time.Millisecond)) {
			m.violation("C4", "eviction although the server's counters began anew %s before, and nothing held",
				m.now.Sub(r.From))
		}
	}
	owner := m.record.fields["owner"]
	l := c.owners[owner]
	if l == nil || l.freed || !l.bye.IsZero() || len(l.beats) == 0 {
		return
	}
	last := l.beats[len(l.beats)-1]
	if n := slices.IndexFunc(c.swept, func(s sweep) bool { return s.owner == owner && s.last.Equal(last) }); n >= 0 {
		return
	}
	s := sweep{m: *m, owner: owner, last: last, hold: time.UnixMilli(since)}
	for _, id := range m.entries() {
		if !slices.Contains(s.holders, id) {
			s.holders = append(s.holders, id)
		}
	}
	for _, earlier := range c.swept { // they held until then
		if !slices.Contains(s.holders, earlier.owner) && earlier.m.now.After(last) {
			s.holders = append(s.holders, earlier.owner)
		}
	}
	c.swept = append(c.swept, s)
}

// end judges every sweep by all that is known of the owners by then.
func (c *c4Holds) end(m *moment) {
	for _, s := range c.swept {
		_, ttl := m.facts.heartbeat(s.owner)
		fell := latest(s.last.Add(ttl), s.hold)
		if !s.m.now.Before(fell.Add(ttl + 2*time.Second)) {
			continue
		}
		off, known := 0, 0
		for _, id := range s.holders {
			is, counts := c.wasOff(m.facts, id, s, fell)
			if counts {
				known++
			}
			if is {
				off++
			}
		}
		if off >= 2 && 2*off > known {
			s.m.violation("C4", "entries of %q went %s after its end although %d of %d owners were off with it",
				s.owner, s.m.now.Sub(fell), off, known)
		}
	}
}

// wasOff reports whether a holder missed a whole TTL at a time when the swept one was silent, and a
// leader could see it by then, and whether it counts at all: whoever came later, left in good order
// or was dead long before proves nothing.
func (c *c4Holds) wasOff(f *Facts, id string, s sweep, fell time.Time) (off, counts bool) {
	l := c.owners[id]
	if l == nil || l.freed || len(l.beats) == 0 {
		return false, false
	}
	interval, ttl := f.heartbeat(id)
	due := interval + min(interval/2, 2*time.Second) + interval/5
	for i, beat := range l.beats {
		next := s.m.now.Add(1000 * time.Hour)
		if i+1 < len(l.beats) {
			next = l.beats[i+1]
		} else if !l.bye.IsZero() {
			next = l.bye
		}
		if next.Sub(beat) >= ttl && next.After(s.last) && beat.Add(due+looked).Before(s.m.now) {
			// dead long before: a death of its own
			return !beat.Add(ttl).Add(ttl + 2*time.Second).Before(fell), !beat.Add(ttl).Add(ttl + 2*time.Second).Before(fell)
		}
	}
	return false, l.beats[0].Before(s.last) && (l.bye.IsZero() || l.bye.After(s.m.now))
}

// An owner that lost its heartbeat to the harness or to a new life of the server has not fallen
// silent.
func (c *c4Holds) struck(m *moment) {
	for id, l := range c.owners {
		switch there := m.state.Exists(m.facts.Layout.Heartbeat(id)); {
		case !there && l.bye.IsZero():
			l.freed = true
		case there:
			l.bye = time.Time{}
		}
	}
}
