package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/registry"
)

// Facts are what a judge must know and Redis cannot tell.
type Facts struct {
	Layout registry.Layout
	// HeartbeatInterval, HeartbeatTTL and LeaseTTL as the replicas were set.
	HeartbeatInterval, HeartbeatTTL, LeaseTTL time.Duration
	// Sockets are the truth about devices, in any order.
	Sockets []Socket
	// Planted are owners whose entries the scenario wrote itself, as an older writer would: plainly, without a heartbeat.
	Planted map[string]bool
}

func (f *Facts) gap() time.Duration  { return (f.HeartbeatTTL - f.HeartbeatInterval) / 2 }
func (f *Facts) warm() time.Duration { return f.HeartbeatTTL + 2*time.Second }

// Socket is what a device knows about one of its sockets. The clock is the server's: both run on one machine.
type Socket struct {
	IMEI, Instance string
	// Live is when the handshake had been answered; zero: it was not, and yet a registration may have landed.
	Live time.Time
	// Ended is when the device began to leave it, or just before the fault that ended it; zero: it has not.
	Ended time.Time
}

// liveAt tells whether the socket was open beyond doubt.
func (s *Socket) liveAt(t time.Time) bool {
	return !s.Live.IsZero() && !t.Before(s.Live) && !s.endedBy(t)
}

func (s *Socket) endedBy(t time.Time) bool { return !s.Ended.IsZero() && !s.Ended.After(t) }

// Violation is one thing in a history that must not be.
type Violation struct {
	Check  string // C1 … C7, or "history": what the judge itself relies on
	At     time.Time
	Offset int64 // in the file, of the event
	What   string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %s, byte %d: %s", v.Check, v.At.UTC().Format("15:04:05.000"), v.Offset, v.What)
}

// Verdict is what a history shows.
type Verdict struct {
	Violations []Violation
	Batches    []Batch
	Terms      []Term
	Leases     []Lease
	// FalseDeaths are evictions of devices with a live socket whose owner had not refreshed for a TTL.
	FalseDeaths int
	// Final is the keyspace at the history's end.
	Final *Keyspace

	facts *Facts
	at    time.Time
}

// Lease is one taking of the lease.
type Lease struct {
	At    time.Time
	Token string // <instance>/<random>
}

// Evicted is how many entries were evicted, of one dead owner, or of all if owner is "".
func (v *Verdict) Evicted(owner string) (n int) {
	for _, b := range v.Batches {
		if owner == "" || b.Owner == owner {
			n += len(b.IMEIs)
		}
	}
	return n
}

// EvictedBy is how many entries were evicted in the name of a leader.
func (v *Verdict) EvictedBy(leader string) (n int) {
	for _, b := range v.Batches {
		if b.Leader == leader {
			n += len(b.IMEIs)
		}
	}
	return n
}

// moment is what a check sees: an event, one of its commands, and the state just before that.
type moment struct {
	facts   *Facts
	sockets map[string][]*Socket // by IMEI
	state   *Keyspace
	now     time.Time // the event did not happen before
	until   time.Time // nor after
	event   *Event
	record  *record // of the audit, in this event
	command Command // nil when the whole event has been played
	verdict *Verdict
}

func (m *moment) violation(check, format string, args ...any) {
	m.verdict.Violations = append(m.verdict.Violations, Violation{check, m.now, m.event.Offset, fmt.Sprintf(format, args...)})
}

// evicts tells whether the present command takes entries out under an audit record of a batch.
func (m *moment) evicts() bool { return m.takesEntries() && m.record != nil && m.record.n > 0 }

func (m *moment) takesEntries() bool {
	return m.command[0] == "HDEL" && m.command[1] == m.facts.Layout.Registry()
}

// owner is whom an entry names, "" if it is absent.
func (m *moment) owner(imei string) string { return m.state.Hashes[m.facts.Layout.Registry()][imei] }

// liveSocket returns a socket of a device on an instance that is open beyond doubt, nil if there is none.
func (m *moment) liveSocket(imei, instance string) *Socket {
	for _, s := range m.sockets[imei] {
		if s.Instance == instance && s.liveAt(m.now) && s.liveAt(m.until) {
			return s
		}
	}
	return nil
}

func (m *moment) witness(field string) (ms int64, there bool) {
	ms, err := strconv.ParseInt(m.state.Hashes[m.facts.Layout.Witness()][field], 10, 64)
	return ms, err == nil
}

// A check watches a history go by. Its methods are called for every moment and report by moment.violation.
type check interface {
	before(*moment) // of each command
	after(*moment)  // of each event
	end(*moment)    // of the history
}

// Judge plays a history and returns what the checks C1 to C5 find in it. It depends on nothing else, so that the
// history of an old run can be judged again.
func Judge(h History, f Facts) *Verdict {
	v := &Verdict{Final: newKeyspace(), facts: &f}
	m := &moment{facts: &f, state: v.Final, verdict: v, sockets: make(map[string][]*Socket)}
	for i := range f.Sockets {
		s := &f.Sockets[i]
		m.sockets[s.IMEI] = append(m.sockets[s.IMEI], s)
	}
	checks := []check{c1{}, newC2(), newC3(), &c4{}, &c5{}, chronicle{}}
	spans := h.spans(&f)
	for i := range h {
		m.event, m.now, m.until = &h[i], spans[i].from, spans[i].until
		m.record = recordIn(m.event, f.Layout)
		for _, m.command = range m.event.Commands {
			for _, c := range checks {
				c.before(m)
			}
			if err := m.state.apply(m.command); err != nil {
				m.violation("history", "%v", err)
			}
		}
		m.command = nil
		for _, c := range checks {
			c.after(m)
		}
	}
	if m.event != nil {
		for _, c := range checks {
			c.end(m)
		}
	}
	v.at = m.now
	return v
}

// chronicle notes in the verdict what happened when. It finds no fault.
type chronicle struct{}

func (chronicle) before(m *moment) {
	switch {
	case m.evicts():
		m.verdict.Batches = append(m.verdict.Batches, Batch{
			At: m.now, Epoch: m.record.epoch, N: m.record.n,
			Leader: m.record.fields["leader"], Owner: m.record.fields["owner"], IMEIs: slices.Clone(m.command[2:]),
		})
	case m.command[0] == "SET" && m.command[1] == m.facts.Layout.Lease():
		m.verdict.Leases = append(m.verdict.Leases, Lease{m.now, m.command[2]})
	}
}

func (chronicle) after(m *moment) {
	if m.record != nil && m.record.n == 0 {
		m.verdict.Terms = append(m.verdict.Terms, Term{m.now, m.record.epoch, m.record.fields["leader"], m.record.fields["term"]})
	}
}

func (chronicle) end(*moment) {}

// NextLease returns when another instance than not took the lease for the first time after t; zero if none has.
func (v *Verdict) NextLease(t time.Time, not string) time.Time {
	for _, l := range v.Leases {
		if id, _, _ := strings.Cut(l.Token, "/"); l.At.After(t) && id != not {
			return l.At
		}
	}
	return time.Time{}
}

// LastEviction returns when the last entry of a dead owner was evicted; zero if none was.
func (v *Verdict) LastEviction(owner string) (at time.Time) {
	for _, b := range v.Batches {
		if b.Owner == owner {
			at = b.At
		}
	}
	return at
}

// LastDoubt returns when the witness last started anew.
func (v *Verdict) LastDoubt() time.Time {
	ms, err := strconv.ParseInt(v.Final.Hashes[v.facts.Layout.Witness()]["doubt"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
