package judge

import "time"

// c4Holds is C4 for holds that the witness may have missed, by the server's own history:
//
//   - the server's counters restarted (Facts.Restarts), which loses everything they had counted;
//   - so many owners fell silent at once that more likely the witness missed their heartbeats.
type c4Holds struct {
	passive
	owners map[string]*silence // that have ever beaten
	mass   time.Time           // last hold for mass silence
}

type silence struct {
	fell time.Time // zero: it exists
	bye  bool      // as expected
	// since the present term, if it was silent then and had entries: a new leader cannot know since
	// when
	found time.Time
}

func newC4Holds() *c4Holds {
	return &c4Holds{owners: make(map[string]*silence)}
}

// looked is how old a leader's last look at its owners may be.
const looked = 1500 * time.Millisecond

func (c *c4Holds) before(m *moment) {
	if id, _ := m.beats(); id != "" {
		c.owners[id] = &silence{}
	}
	if m.command[0] == "DEL" || m.command[0] == "UNLINK" {
		for _, key := range m.command[1:] {
			if id, is := m.heartbeatOf(key); is && m.state.Exists(key) {
				c.ends(m, id)
			}
		}
	}
	switch {
	case m.evicts():
		c.judges(m)
	case m.opens():
		c.opens(m)
	}
}

// ends takes three causes: expiry, a goodbye, or Redis' need of memory.
func (c *c4Holds) ends(m *moment, id string) {
	o := c.owners[id]
	if o == nil {
		return
	}
	end, ends := m.state.Expiry[m.facts.Layout.Heartbeat(id)]
	switch {
	case ends && !end.After(m.until):
		o.fell = m.now
	case len(m.event.Commands) == 1:
		delete(c.owners, id) // it may well be alive
	default:
		o.fell, o.bye = m.now, true
	}
}

func (c *c4Holds) opens(m *moment) {
	named := make(map[string]bool)
	for _, id := range m.entries() {
		named[id] = true
	}
	for id, o := range c.owners {
		if !o.fell.IsZero() && named[id] {
			o.found = m.now
		}
	}
}

func (c *c4Holds) judges(m *moment) {
	since, _ := m.witness("since")
	for _, r := range m.facts.Restarts {
		if m.now.After(r.Until) && time.UnixMilli(since).Before(r.From.Truncate(time.Millisecond)) {
			m.violation("C4", "eviction although the server's counters began anew %s before, and nothing held",
				m.now.Sub(r.From))
		}
	}
	fallen, known := c.fallen(m)
	if fallen >= 2 && 2*fallen > known && m.now.Sub(c.mass) > 2*m.facts.graceAtMost(m.now)+looked {
		m.violation("C4", "eviction although %d of %d owners fell silent at once, and nothing held", fallen, known)
	}
}

// fallen counts the owners that fell silent within the last TTL, were found silent by a new leader,
// or were overdue when the leader last looked, and all owners that can be known. A leader that may
// not know yet is favoured.
func (c *c4Holds) fallen(m *moment) (fallen, known int) {
	ago := m.now.Add(-m.facts.HeartbeatTTL)
	for id, o := range c.owners {
		lately := o.fell.After(ago) || o.found.After(ago)
		if !o.fell.IsZero() && !lately {
			continue
		}
		known++
		end := o.fell
		if end.IsZero() {
			end = m.state.Expiry[m.facts.Layout.Heartbeat(id)]
		}
		if !end.IsZero() && !o.bye && end.Before(m.now.Add(m.facts.leastInTime()-looked)) {
			fallen++
		}
	}
	return fallen, known
}

// leastInTime is a heartbeat's least rest while its owner is on time: a beat may be lost and
// retried. With mixed settings nobody counts as overdue.
func (f *Facts) leastInTime() time.Duration {
	for _, s := range f.Settings {
		if s.HeartbeatTTL != f.HeartbeatTTL || s.HeartbeatInterval != f.HeartbeatInterval {
			return 0
		}
	}
	timeout := min(f.HeartbeatInterval/2, 2*time.Second)
	return max(0, f.HeartbeatTTL-f.HeartbeatInterval-timeout-f.HeartbeatInterval/5)
}

func (c *c4Holds) after(m *moment) {
	if m.witnesses("since") && m.reason() == "mass_failure" {
		c.mass = m.now
	}
}

// An owner that lost its heartbeat to the harness or to a new life of the server has not fallen
// silent.
func (c *c4Holds) struck(m *moment) {
	for id, o := range c.owners {
		if there := m.state.Exists(m.facts.Layout.Heartbeat(id)); !there && o.fell.IsZero() {
			delete(c.owners, id)
		} else if there {
			*o = silence{}
		}
	}
}
