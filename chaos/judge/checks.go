package judge

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// c1 checks S1, also for commands answered on behalf of an instance.
type c1 struct{ passive }

func (c1) before(m *moment) {
	if !m.evicts() && !m.answers() {
		return
	}
	owner := m.record.fields["owner"]
	if _, lives := m.state.Strings[m.facts.Layout.Heartbeat(owner)]; lives || owner == "" {
		m.violation("C1", "%d taken out of %s while the heartbeat of their owner %q exists",
			len(m.command)-2, m.key(), owner)
	}
	if m.answers() && m.key() != m.facts.outbound(owner) {
		m.violation("C1", "commands in %s answered for owner %q", m.key(), owner)
	}
	for _, imei := range m.command[2:] {
		if got := m.owner(imei); m.evicts() && got != owner {
			m.violation("C1", "entry %s evicted for owner %q, but it named %q", imei, owner, got)
		}
	}
}

// c2 checks S1.
type c2 struct {
	passive
	beat  map[string]time.Time // last refresh, by instance
	lives map[string]time.Time // its end
	// heartbeats deleted by hand, and not beaten since
	byHand  map[string]bool
	mourned map[string]time.Time // false deaths not healed, by IMEI
}

func newC2() *c2 {
	return &c2{
		beat: make(map[string]time.Time), lives: make(map[string]time.Time),
		byHand: make(map[string]bool), mourned: make(map[string]time.Time),
	}
}

func (c *c2) before(m *moment) {
	if id, _ := m.beats(); id != "" {
		c.refreshes(m, id, history.Option(m.command[2:], "PXAT"))
		delete(c.byHand, id)
	} else if id, is := m.heartbeatOf(m.key()); is && m.command[0] == "PEXPIREAT" {
		c.refreshes(m, id, m.command[2])
	}
	var gone []string // of a dead owner
	if m.evicts() {
		gone = m.command[2:]
	}
	for _, e := range m.succeeds() {
		gone = append(gone, e.imei)
	}
	for _, imei := range gone {
		owner := m.owner(imei)
		if c.byHand[owner] || m.liveSocket(imei, owner) == nil {
			continue
		}
		// Redis may have evicted the heartbeat; its owner still refreshed it.
		if beat, ok := c.beat[owner]; ok && m.now.Before(c.lives[owner]) {
			m.violation("C2", "entry %s gone: its socket at %s is open, which refreshed %s before",
				imei, owner, m.now.Sub(beat))
			continue
		}
		// Silence without a cause is as much a fault as a janitor that sweeps too early.
		interval, _ := m.facts.heartbeat(owner)
		if beat, ok := c.beat[owner]; ok && m.late.of(owner).within(beat.Add(-interval), m.now) == 0 {
			m.violation("C2", "entry %s gone: its socket at %s is open, which has not refreshed for %s, "+
				"and nothing kept it from that", imei, owner, m.now.Sub(beat))
			continue
		}
		m.verdict.FalseDeaths++
		c.mourned[imei] = m.now
	}
}

func (c *c2) refreshes(m *moment, id, until string) {
	_, ttl := m.facts.heartbeat(id)
	end := m.now.Add(ttl)
	if ms, err := strconv.ParseInt(until, 10, 64); err == nil {
		end = time.UnixMilli(ms) // as it was set
	}
	if !end.Equal(c.lives[id]) {
		c.beat[id], c.lives[id] = m.now, end
	}
}

func (c *c2) after(m *moment) {
	for _, e := range m.changes {
		gone, wrongly := c.mourned[e.imei]
		if !wrongly || e.to == "" {
			continue
		}
		delete(c.mourned, e.imei)
		for _, s := range m.sockets[e.imei] {
			if s.Instance == e.to && !s.endedBy(m.now) {
				m.verdict.Healed++
				m.verdict.SlowestHeal = max(m.verdict.SlowestHeal, m.now.Sub(gone))
				break
			}
		}
	}
}

func (c *c2) struck(m *moment) {
	for _, cmd := range m.event.Commands {
		if m.life || cmd[0] != "DEL" && cmd[0] != "UNLINK" {
			continue
		}
		for _, key := range cmd[1:] {
			if id, is := m.heartbeatOf(key); is {
				c.byHand[id] = true
			}
		}
	}
}

// c3 checks S2, S5 and L2.
type c3 struct {
	passive
	token   map[string]string    // newest boot token, by instance
	booted  map[string]time.Time // its first beat
	beat    map[string]time.Time // last beat, by instance
	written map[string]time.Time // last write, by IMEI
	strays  map[stray]bool       // written by hand
}

type stray struct{ imei, instance string }

func newC3() *c3 {
	return &c3{
		token: make(map[string]string), booted: make(map[string]time.Time),
		beat: make(map[string]time.Time), written: make(map[string]time.Time),
		strays: make(map[stray]bool),
	}
}

func (c *c3) before(m *moment) {
	l, cmd := m.facts.Layout, m.command
	if id, token := m.beats(); id != "" {
		// Tokens have one width, so they compare as strings. The server forgets a token that expired.
		if _, before, _ := strings.Cut(m.state.Strings[cmd[1]], "/"); token < before {
			m.violation("C3", "instance %s beats with boot token %s while a newer life's, %s, stands",
				id, token, before)
		}
		if c.token[id] != token {
			c.token[id], c.booted[id] = token, m.now
		}
		c.beat[id] = m.now
	}
	switch {
	case (cmd[0] == "HSET" || cmd[0] == "HMSET") && m.key() == l.Registry():
		for pair := range slices.Chunk(cmd[2:], 2) {
			c.writes(m, pair[0], pair[1])
		}
	case m.takesEntries() && !m.evicts():
		for _, imei := range cmd[2:] {
			c.takes(m, imei)
		}
	case m.deletes(l.Registry()):
		m.violation("C3", "the whole registry was deleted")
	}
}

func (c *c3) writes(m *moment, imei, to string) {
	from := m.owner(imei)
	c.written[imei] = m.now
	if !m.facts.Planted[to] || c.token[to] != "" {
		if !m.asserts(to) {
			m.violation("C3", "entry %s written to %s without its heartbeat in the same step", imei, to)
		}
		if !m.wasAt(imei, to) {
			m.violation("C3", "entry %s written to %s, where the device has never been", imei, to)
			return
		}
	}
	if from == "" || from == to {
		return
	}
	if len(m.succeeds()) > 0 { // C2 and C4 judge the rest
		if m.state.Exists(m.facts.Layout.Heartbeat(from)) {
			m.violation("C3", "entry %s taken over by %s while the heartbeat of its owner %q exists", imei, to, from)
		}
		return
	}
	if m.liveSocket(imei, from) == nil {
		return
	}
	if slices.ContainsFunc(m.sockets[imei], func(s *Socket) bool {
		return s.Instance == to && m.late.mayWrite(m, s)
	}) {
		return
	}
	m.violation("C3", "entry %s taken by %s, where the device is not, from %s, where it is", imei, to, from)
}

func (m *moment) wasAt(imei, instance string) bool {
	return slices.ContainsFunc(m.sockets[imei], func(s *Socket) bool {
		return s.Instance == instance && !s.Asked.After(m.until)
	})
}

func (m *moment) asserts(instance string) bool {
	return slices.ContainsFunc(m.event.Commands, func(c history.Command) bool {
		return c[0] == "SET" && c[1] == m.facts.Layout.Heartbeat(instance)
	})
}

// takes judges removals by anybody but a janitor: the index touched identifies the remover.
func (c *c3) takes(m *moment, imei string) {
	owner := m.owner(imei)
	if owner == "" {
		m.violation("C3", "entry %s taken out, but it is absent in the model", imei)
		return
	}
	fromIndex := false
	for _, other := range m.event.Commands {
		if other[0] != "SREM" {
			continue
		}
		id, index := strings.CutPrefix(other[1], m.facts.Layout.Devices(""))
		if index && id != owner {
			m.violation("C3", "entry %s of %s taken out by %s", imei, owner, id)
		}
		fromIndex = fromIndex || index && id == owner && slices.Contains(other[2:], imei)
	}
	if _, member := m.state.Sets[m.facts.Layout.Devices(owner)][imei]; member && !fromIndex {
		m.violation("C3", "entry %s of %s taken out, and not out of its index", imei, owner)
	}
	if killed := c.killed(m, owner); !killed.IsZero() {
		m.violation("C3", "entry %s of %s taken out without a record, %s after that was killed",
			imei, owner, m.now.Sub(killed))
		return
	}
	if m.liveSocket(imei, owner) != nil {
		if !m.late.mayRelease(m, imei, owner) {
			m.violation("C3", "entry %s taken out although its socket at %s is open", imei, owner)
		}
		return
	}
	if c.written[imei].Before(c.booted[owner]) || c.strays[stray{imei, owner}] {
		return // left over from a former life, or by the harness
	}
	if slices.ContainsFunc(m.sockets[imei], func(s *Socket) bool {
		return s.Instance == owner && s.endedBy(m.until)
	}) {
		return
	}
	m.violation("C3", "entry %s of %s taken out: no socket of it closed there, and that is no former life's",
		imei, owner)
}

// killed returns when an instance was killed, if nothing it sent can land any more and nobody has
// beaten under its id since.
func (c *c3) killed(m *moment, instance string) (at time.Time) {
	for i := range m.facts.Deaths {
		d := &m.facts.Deaths[i]
		if d.Instance == instance && d.How == Killed && c.beat[instance].Before(d.At.Add(time.Second)) &&
			m.now.Sub(d.At) > LateWrite+m.late.of(instance).within(d.At, m.now) {
			at = d.At
		}
	}
	return at
}

func (c *c3) after(m *moment) {
	for _, cmd := range m.event.Commands {
		if cmd[0] != "SREM" || cmd[1] != m.facts.Layout.Roster() {
			continue
		}
		for _, id := range cmd[2:] {
			if m.state.Exists(m.facts.Layout.Heartbeat(id)) || m.state.Exists(m.facts.Layout.Devices(id)) {
				m.violation("C3", "%s is taken off the roster and has a heartbeat or an index", id)
			}
		}
	}
}

func (c *c3) struck(m *moment) {
	if m.life {
		return
	}
	for _, e := range m.changes {
		if e.to != "" {
			c.strays[stray{e.imei, e.to}] = true
		}
	}
}
