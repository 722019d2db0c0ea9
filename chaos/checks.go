package chaos

import (
	"strings"
	"time"
)

// lateWrite is how long after a device has left a replica that one's registration may still land: made within a second of the
// handshake, in a call of at most three.
const lateWrite = 5 * time.Second

// c1: at each eviction the owner's heartbeat is absent and the entry holds the owner judged (S1).
type c1 struct{}

func (c1) before(m *moment) {
	if !m.evicts() {
		return
	}
	owner := m.record.fields["owner"]
	if _, lives := m.state.Strings[m.facts.Layout.Heartbeat(owner)]; lives || owner == "" {
		m.violation("C1", "%d entries evicted while the heartbeat of their owner %q exists", len(m.command)-2, owner)
	}
	for _, imei := range m.command[2:] {
		if got := m.owner(imei); got != owner {
			m.violation("C1", "entry %s evicted for owner %q, but it named %q", imei, owner, got)
		}
	}
}

func (c1) after(*moment) {}
func (c1) end(*moment)   {}

// c2: no entry of a live socket is evicted while its owner has refreshed within the last TTL (S1).
type c2 struct{ beat map[string]time.Time } // by instance: the last refresh

func newC2() *c2 { return &c2{make(map[string]time.Time)} }

func (c *c2) before(m *moment) {
	if id, ok := strings.CutPrefix(m.command[1], m.facts.Layout.Heartbeat("")); ok && (m.command[0] == "SET" || m.command[0] == "PEXPIREAT") {
		c.beat[id] = m.now
	}
	if !m.evicts() {
		return
	}
	for _, imei := range m.command[2:] {
		owner := m.owner(imei)
		if m.liveSocket(imei, owner) == nil {
			continue
		}
		if beat, ok := c.beat[owner]; ok && m.now.Sub(beat) < m.facts.HeartbeatTTL {
			m.violation("C2", "entry %s evicted: its socket at %s is open, which refreshed %s before", imei, owner, m.now.Sub(beat))
			continue
		}
		m.verdict.FalseDeaths++
	}
}

func (*c2) after(*moment) {}
func (*c2) end(*moment)   {}

// c3: what is no eviction is an owner's own doing (S2, S5, L2).
type c3 struct {
	token   map[string]string    // by instance: boot token of the newest beat
	booted  map[string]time.Time // by instance: when that token appeared
	written map[string]time.Time // by IMEI: when its entry was written last
}

func newC3() *c3 {
	return &c3{make(map[string]string), make(map[string]time.Time), make(map[string]time.Time)}
}

func (c *c3) before(m *moment) {
	l, cmd := m.facts.Layout, m.command
	if id, ok := strings.CutPrefix(cmd[1], l.Heartbeat("")); ok && cmd[0] == "SET" {
		_, token, _ := strings.Cut(cmd[2], "/")
		// As strings: tokens are of one width. Of one that expired the server knows nothing any more.
		if _, before, _ := strings.Cut(m.state.Strings[cmd[1]], "/"); token < before {
			m.violation("C3", "instance %s beats with boot token %s while a newer life's, %s, stands", id, token, before)
		}
		if c.token[id] != token {
			c.token[id], c.booted[id] = token, m.now
		}
	}
	switch {
	case cmd[0] == "HSET" && cmd[1] == l.Registry():
		for i := 2; i+1 < len(cmd); i += 2 {
			c.writes(m, cmd[i], cmd[i+1])
		}
	case m.takesEntries() && !m.evicts():
		for _, imei := range cmd[2:] {
			c.takes(m, imei)
		}
	case (cmd[0] == "DEL" || cmd[0] == "UNLINK") && cmd[1] == l.Registry():
		m.violation("C3", "the whole registry was deleted")
	}
}

// writes judges an entry that is written to name an instance.
func (c *c3) writes(m *moment, imei, to string) {
	from := m.owner(imei)
	c.written[imei] = m.now
	if m.facts.Planted[to] && c.token[to] == "" {
		return
	}
	if !m.asserts(to) {
		m.violation("C3", "entry %s written to %s without its heartbeat in the same step", imei, to)
	}
	if from == "" || from == to || m.liveSocket(imei, from) == nil {
		return
	}
	for _, s := range m.sockets[imei] {
		if s.Instance == to && !s.endedBy(m.now.Add(-lateWrite)) {
			return
		}
	}
	m.violation("C3", "entry %s taken by %s, where the device is not, from %s, where it is", imei, to, from)
}

// asserts tells whether the event refreshes an instance's heartbeat.
func (m *moment) asserts(instance string) bool {
	for _, c := range m.event.Commands {
		if c[0] == "SET" && c[1] == m.facts.Layout.Heartbeat(instance) {
			return true
		}
	}
	return false
}

// takes judges an entry that is taken out by somebody who is no janitor: by whom shows the index that it is taken out of.
func (c *c3) takes(m *moment, imei string) {
	owner := m.owner(imei)
	if owner == "" {
		m.violation("C3", "entry %s taken out, but it is absent in the model", imei)
		return
	}
	for _, other := range m.event.Commands {
		id, index := strings.CutPrefix(other[1], m.facts.Layout.Devices(""))
		if index && other[0] == "SREM" && id != owner {
			m.violation("C3", "entry %s of %s taken out by %s", imei, owner, id)
		}
	}
	if m.liveSocket(imei, owner) != nil {
		m.violation("C3", "entry %s taken out although its socket at %s is open", imei, owner)
		return
	}
	if c.written[imei].Before(c.booted[owner]) {
		return // left over from a former life
	}
	for _, s := range m.sockets[imei] {
		if s.Instance == owner && s.endedBy(m.until) {
			return
		}
	}
	m.violation("C3", "entry %s of %s taken out: no socket of it closed there, and that is no former life's", imei, owner)
}

func (*c3) after(*moment) {}
func (*c3) end(*moment)   {}
