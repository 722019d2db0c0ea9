package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// c6 checks L1 and L3.
type c6 struct {
	dead  map[string]*deceased // by instance
	ends  []leaseEnd
	holds []time.Time
	lives map[string]phase // of all: from the first beat until the last
}

type deceased struct {
	entries int     // naming it now
	held    []phase // when entries named it
	// the first or last with its token, or long after its predecessor
	beats []beat
}

type phase struct{ from, until time.Time }

// lapsed: it expired before it was released
type leaseEnd struct {
	at       time.Time
	instance string
	lapsed   bool
}

type beat struct {
	at    time.Time
	token string
}

func newC6(f *Facts) *c6 {
	c := &c6{dead: make(map[string]*deceased), lives: make(map[string]phase)}
	for _, d := range f.Deaths {
		c.dead[d.Instance] = &deceased{}
	}
	return c
}

func (c *c6) before(m *moment) {
	if lease := m.facts.Layout.Lease(); m.deletes(lease) && m.state.Exists(lease) {
		id, _, _ := strings.Cut(m.state.Strings[lease], "/")
		end, ends := m.state.Expiry[lease]
		c.ends = append(c.ends, leaseEnd{m.now, id, ends && !end.After(m.until)})
	}
	id, token := m.beats()
	if p, met := c.lives[id]; id != "" {
		if !met {
			p.from = m.now
		}
		p.until = m.now
		c.lives[id] = p
	}
	if d := c.dead[id]; d != nil {
		d.beats = append(d.beats, beat{m.now, token})
	}
}

func (c *c6) after(m *moment) {
	c.struck(m)
	if m.witnesses("since") {
		c.holds = append(c.holds, m.now)
	}
}

func (c *c6) struck(m *moment) {
	for _, e := range m.changes {
		if d := c.dead[e.from]; d != nil {
			if d.entries--; d.entries == 0 {
				d.held[len(d.held)-1].until = m.now
			}
		}
		if d := c.dead[e.to]; d != nil {
			if d.entries++; d.entries == 1 {
				d.held = append(d.held, phase{from: m.now})
			}
		}
	}
}

func (c *c6) end(m *moment) {
	f, v := m.facts, m.verdict
	// Nobody can be expected to act while nobody can.
	idle := merged(slices.Concat(f.Held, f.Outages), func(o *Outage) bool { return o.Instance == "" })
	leaderless := slices.Clone([]Outage(idle))
	late := func(d *Death, format string, args ...any) {
		what := d.Instance + " " + d.How + ": " + fmt.Sprintf(format, args...)
		v.Violations = append(v.Violations, Violation{Check: "C6", At: d.At, What: what})
	}
	for i := range f.Deaths {
		d := &f.Deaths[i]
		if !d.Led {
			continue
		}
		next := v.NextLease(d.At, "")
		by := idle.putOff(d.At, f.LeaseTTL+f.leaseRetry()+f.Slack)
		if d.How == Released {
			by = idle.putOff(d.At, 100*time.Millisecond+f.Slack)
			// On a busy machine that bound is not below the lease's end: the delete itself has to
			// show the release.
			i := slices.IndexFunc(c.ends, func(e leaseEnd) bool {
				return e.instance == d.Instance && !e.at.Before(d.At)
			})
			if i >= 0 && c.ends[i].lapsed {
				late(d, "it led, and left its lease to lapse")
			}
		}
		switch {
		case next.IsZero() && m.now.After(by):
			late(d, "it led, and nobody took the lease any more")
		case next.After(by):
			late(d, "it led, and the lease was taken again only after %s", next.Sub(d.At))
		}
		if !next.IsZero() {
			v.NewLeader = append(v.NewLeader, next.Sub(d.At))
		}
		leaderless = append(leaderless, Outage{From: d.At, Until: next})
	}
	idle = merged(leaderless, func(*Outage) bool { return true })
	for i := range f.Deaths {
		d := &f.Deaths[i]
		last, back := c.dead[d.Instance].since(d, f.Slack)
		// The heartbeat expires and GRACE passes whether or not anybody can sweep by then.
		_, ttl := f.heartbeat(d.Instance)
		end := last.Add(ttl)
		if c.together(f, d) {
			end = end.Add(f.graceAtMost(end))
		}
		by := idle.putOff(end, f.JanitorInterval+f.Sweeping+f.Slack)
		for _, hold := range c.holds {
			until := idle.putOff(hold.Add(f.graceAtMost(hold)), f.JanitorInterval+f.Sweeping+f.Slack)
			if !hold.After(by) && until.After(by) {
				by = until
			}
		}
		clean, had := c.dead[d.Instance].cleanAfter(d.At, back)
		if clean.IsZero() && (back.IsZero() && m.now.After(by) || back.After(by)) && had {
			late(d, "entries still name it %s later", max(m.now.Sub(d.At), back.Sub(d.At)))
		}
		if !had || clean.IsZero() {
			continue
		}
		if clean.After(by) {
			late(d, "the last of its entries went only after %s", clean.Sub(d.At))
		}
		v.Clean = append(v.Clean, clean.Sub(d.At))
	}
}

// together reports whether it died while most others were dead or cut off. Then it is doubted.
func (c *c6) together(f *Facts, d *Death) bool {
	_, ttl := f.heartbeat(d.Instance)
	near := func(at time.Time) bool { return at.Sub(d.At).Abs() < 2*ttl }
	off := map[string]bool{d.Instance: true}
	for _, o := range f.Deaths {
		off[o.Instance] = off[o.Instance] || o.How != Released && near(o.At)
	}
	for _, o := range f.Outages {
		off[o.Instance] = off[o.Instance] || o.Instance != "" && near(o.From)
	}
	n, known := 0, 0
	for id, p := range c.lives {
		if !p.from.After(d.At.Add(ttl)) && !p.until.Before(d.At.Add(-ttl)) {
			known++
			if off[id] {
				n++
			}
		}
	}
	return n >= 2 && 2*n > known
}

// since returns the last beat of the dead, or the death if that is later, and when its id came
// back. Messages sent before the death may still land.
func (d *deceased) since(death *Death, slack time.Duration) (last, back time.Time) {
	last = death.At
	mayWake := death.How == Stopped || death.How == CutOff
	token, known := "", false
	for _, b := range d.beats {
		switch {
		case !b.at.After(death.At):
			token, known = b.token, true
		case known && b.token != token, mayWake && b.at.Sub(death.At) > slack:
			return last, b.at
		default:
			last = b.at
		}
	}
	return last, time.Time{}
}

func (d *deceased) cleanAfter(death, back time.Time) (clean time.Time, had bool) {
	for _, p := range d.held {
		if !p.until.IsZero() && !p.until.After(death) || !back.IsZero() && !p.from.Before(back) {
			continue
		}
		had = true
		if p.until.IsZero() || !back.IsZero() && p.until.After(back) {
			return time.Time{}, true
		}
		clean = p.until
	}
	return clean, had
}

// LateWrite is how long a registration may land after the device has left: made within a second of
// the handshake, in a call of at most three.
const LateWrite = 5 * time.Second

// outages are disjoint and in order.
type outages []Outage

func merged(all []Outage, chosen func(*Outage) bool) (m outages) {
	for i := range all {
		if o := all[i]; chosen(&o) {
			if o.Until.IsZero() {
				o.Until = time.Unix(1<<40, 0)
			}
			m = append(m, o)
		}
	}
	slices.SortFunc(m, func(a, b Outage) int { return a.From.Compare(b.From) })
	apart := m[:0]
	for _, o := range m {
		if last := len(apart) - 1; last >= 0 && !o.From.After(apart[last].Until) {
			apart[last].Until = latest(apart[last].Until, o.Until)
			continue
		}
		apart = append(apart, o)
	}
	return apart
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (m outages) within(from, until time.Time) (d time.Duration) {
	for _, o := range m {
		end := o.Until
		if until.Before(end) {
			end = until
		}
		d += max(0, end.Sub(latest(o.From, from)))
	}
	return d
}

// putOff returns the end of a wait that does not advance during outages.
func (m outages) putOff(from time.Time, wait time.Duration) time.Time {
	until := from.Add(wait)
	for _, o := range m {
		if !o.Until.After(from) || o.From.After(until) {
			continue
		}
		until = until.Add(o.Until.Sub(latest(o.From, from)))
	}
	return until
}

type late struct {
	facts *Facts
	known map[string]outages
}

func newLate(f *Facts) *late { return &late{f, make(map[string]outages)} }

func (l *late) of(instance string) outages {
	m, known := l.known[instance]
	if !known {
		m = merged(l.facts.Outages, func(o *Outage) bool { return o.Instance == "" || o.Instance == instance })
		l.known[instance] = m
	}
	return m
}

func (l *late) mayWrite(m *moment, s *Socket) bool {
	if s.Asked.After(m.until) {
		return false
	}
	return !s.endedBy(m.now) || m.now.Sub(s.Ended) < LateWrite+l.of(s.Instance).within(s.Ended, m.now)
}

// mayRelease reports whether an ended socket may be released now though another is open on the same
// instance. An instance never does both at once, but a call that it gave up in an outage can land
// later.
func (l *late) mayRelease(m *moment, imei, instance string) bool {
	return slices.ContainsFunc(m.sockets[imei], func(s *Socket) bool {
		if s.Instance != instance || !s.endedBy(m.now) {
			return false
		}
		out := l.of(instance).within(s.Ended, m.now)
		return out > 0 && m.now.Sub(s.Ended) < LateWrite+out
	})
}
