package judge

import (
	"slices"
	"time"
)

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
