package judge

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/registry"
)

type record struct {
	epoch, n uint64
	fields   map[string]string
}

func recordIn(e *history.Event, l registry.Layout) *record {
	for _, c := range e.Commands {
		if c[0] != "XADD" || c[1] != l.Log() {
			continue
		}
		id, fields := history.StreamEntry(c)
		epoch, n, _ := strings.Cut(id, "-")
		r := &record{fields: fields}
		r.epoch, _ = strconv.ParseUint(epoch, 10, 64)
		r.n, _ = strconv.ParseUint(n, 10, 64)
		return r
	}
	return nil
}

// c4 checks S1.
type c4 struct {
	passive
	drawn uint64            // highest epoch
	tick  map[string]string // witness
	hold  int64             // in ms, which the witness must not forget
}

func (c *c4) before(m *moment) {
	l, cmd := m.facts.Layout, m.command
	switch {
	case cmd[0] == "SET" && m.key() == history.EpochKey(l.Lease()):
		epoch, err := strconv.ParseUint(cmd[2], 10, 64)
		if err != nil || epoch <= c.drawn {
			m.violation("C4", "epoch %s drawn after %d", cmd[2], c.drawn)
		}
		c.drawn = max(c.drawn, epoch)
	case m.opens():
		c.opens(m)
	case m.evicts(), m.answers():
		c.evicts(m)
	case len(m.succeeds()) > 0:
		interval, _ := m.facts.heartbeat("")
		c.listened(m, "entries taken over", interval+min(interval/2, 2*time.Second)+interval/5)
	}
}

func (c *c4) opens(m *moment) {
	t, newest := Term{m.now, m.record.epoch, m.record.fields["leader"], m.record.fields["term"]}, m.newest()
	if t.Epoch <= newest.Epoch {
		m.violation("C4", "term %d opened after term %d", t.Epoch, newest.Epoch)
	}
	if lease := m.state.Strings[m.facts.Layout.Lease()]; lease != t.Token {
		m.violation("C4", "term %d opened with token %q while the lease holds %q", t.Epoch, t.Token, lease)
	}
	if !strings.HasPrefix(t.Token, t.Leader+"/") {
		m.violation("C4", "term %d opened in the name of %s with token %q", t.Epoch, t.Leader, t.Token)
	}
	m.verdict.Terms = append(m.verdict.Terms, t)
}

func (c *c4) evicts(m *moment) {
	newest := m.newest()
	if m.record.epoch != newest.Epoch {
		m.violation("C4", "eviction under epoch %d while the newest term is %d", m.record.epoch, newest.Epoch)
	}
	if lease := m.state.Strings[m.facts.Layout.Lease()]; lease != newest.Token || lease == "" {
		m.violation("C4", "eviction while the lease holds %q and the term %q", lease, newest.Token)
	}
	if end, ends := m.state.Expiry[m.facts.Layout.Lease()]; ends && m.now.Sub(end) > scriptTime {
		m.violation("C4", "eviction %s after the lease's end", m.now.Sub(end))
	}
	leader := m.record.fields["leader"]
	if leader != newest.Leader {
		m.violation("C4", "eviction in the name of %q in the term of %q", leader, newest.Leader)
	}
	if !m.state.Exists(m.facts.Layout.Heartbeat(leader)) {
		m.violation("C4", "eviction by %q, whose own heartbeat is absent", leader)
	}
	c.listened(m, "eviction", m.facts.grace(m.now, m.record.fields["owner"]))
}

// listened demands how long Redis must have been heard: for GRACE, or, in front of an owner that
// holds the device, until a beat is overdue.
func (c *c4) listened(m *moment, what string, need time.Duration) {
	last, ticked := m.witness("last")
	since, known := m.witness("since")
	if !ticked || !known || !m.witnesses("last") {
		m.violation("C4", "%s without a tick of the witness in the same step", what)
		return
	}
	hold, _ := m.witness("hold")
	listened := time.Duration(last-max(since, hold, c.hold)) * time.Millisecond
	if listened < need {
		m.violation("C4", "%s %s after a hold (%s)", what, listened, m.reason())
	}
}

// scriptTime is the longest from a script's start, when keys expire for it, to its tick.
const scriptTime = 100 * time.Millisecond

// after demands that since was restarted by everything that makes silence meaningless.
func (c *c4) after(m *moment) {
	w := m.state.Hashes[m.facts.Layout.Witness()]
	since, _ := m.witness("since")
	hold, _ := m.witness("hold")
	if c.hold = max(c.hold, since, hold); w == nil || m.witnesses("last") && w["since"] == w["last"] {
		c.hold = since
	}
	if w == nil || !m.witnesses("last") {
		if w == nil {
			c.tick = nil
		}
		return
	}
	before := c.tick
	c.tick = maps.Clone(w)
	if w["since"] == w["last"] {
		return
	}
	if before == nil {
		m.violation("C4", "the witness' first tick does not start anew")
		return
	}
	last, _ := strconv.ParseInt(before["last"], 10, 64)
	now, _ := strconv.ParseInt(w["last"], 10, 64)
	if gap := time.Duration(now-last) * time.Millisecond; gap < 0 || gap > m.facts.gap() {
		m.violation("C4", "a gap of %s in the witness was not taken for one", gap)
	}
	for _, sign := range []string{"gap", "grace", "server"} {
		if before[sign] != "" && before[sign] != w[sign] {
			m.violation("C4", "%s went from %s to %s and nothing held", sign, before[sign], w[sign])
		}
	}
	for sign, at := range map[string]string{"evicted_keys": "evicted_at", "refused": "refused_at"} {
		if before[sign] != "" && before[sign] != w[sign] && w[at] != w["last"] {
			m.violation("C4", "%s went from %s to %s and nobody wrote down when", sign, before[sign], w[sign])
		}
	}
}

// struck keeps the terms and epochs drawn, but of the witness only the present state: the next
// listener has nothing else.
func (c *c4) struck(m *moment) {
	c.tick = maps.Clone(m.state.Hashes[m.facts.Layout.Witness()])
	c.hold, _ = m.witness("since")
}

// c5 checks S3.
type c5 struct {
	total   int64    // expected
	within  []string // by the present event
	said    int      // commands, likewise
	evicted string   // Redis' own count, at the last tick
	lost    int64    // total lost with the witness, until the next tick gives the reason
	forgot  bool     // likewise, the log
}

func (c *c5) before(m *moment) {
	if m.evicts() {
		c.within = append(c.within, m.command[2:]...)
	}
	if m.answers() {
		c.said += len(m.command) - 2
	}
	// A server short of memory may evict the witness together with the total. That is a plain DEL,
	// and the witness' next tick shows it.
	if m.deletes(m.facts.Layout.Witness()) && len(m.event.Commands) == 1 && len(m.command) == 2 {
		c.lost, c.total = c.lost+c.total, 0
	}
	if m.deletes(m.facts.Layout.Log()) {
		c.forgot = true
	}
}

func (c *c5) after(m *moment) {
	if m.witnesses("last") {
		now := m.state.Hashes[m.facts.Layout.Witness()]["evicted_keys"]
		if c.lost > 0 && now == c.evicted {
			m.violation("C5", "the total of %d was lost with the witness, and Redis evicted nothing", c.lost)
		}
		if c.forgot && now == c.evicted {
			m.violation("C5", "the log was deleted, and Redis evicted nothing")
		}
		c.lost, c.forgot, c.evicted = 0, false, now
	}
	gone, said := c.within, c.said
	c.within, c.said, c.total = nil, 0, c.total+int64(len(gone)+said)
	if m.record == nil || m.record.n == 0 {
		return
	}
	c.compares(m, gone, said)
	// Total and record change together, or a reader between them would see a wrong total.
	if total, _ := m.witness("evicted_total"); total != c.total {
		m.violation("C5", "the total says %d, %d were evicted", total, c.total)
	}
}

// compares ignores the commands' ids, which the stream's entries do not show here.
func (c *c5) compares(m *moment, gone []string, said int) {
	text, commands := m.record.fields["commands"]
	if !commands {
		text = m.record.fields["imeis"]
	}
	var listed []string
	count, err := strconv.Atoi(m.record.fields["count"])
	if jsonErr := json.Unmarshal([]byte(text), &listed); err != nil || jsonErr != nil {
		m.violation("C5", "record %d-%d cannot be read: %v", m.record.epoch, m.record.n, m.record.fields)
		return
	}
	out := len(gone) + said
	if count != out || len(listed) != out || commands && len(gone) > 0 || !commands && said > 0 {
		m.violation("C5", "record %d-%d counts %d and lists %d; %d entries and %d commands were taken out",
			m.record.epoch, m.record.n, count, len(listed), len(gone), said)
	}
	slices.Sort(gone)
	if slices.Sort(listed); !commands && !slices.Equal(gone, listed) {
		m.violation("C5", "record %d-%d lists other entries than were evicted", m.record.epoch, m.record.n)
	}
}

func (c *c5) struck(m *moment) {
	witness := m.facts.Layout.Witness()
	if !m.life && !slices.ContainsFunc(m.event.Commands, func(cmd history.Command) bool {
		return strings.HasPrefix(cmd[0], "FLUSH") || slices.Contains(cmd[1:], witness)
	}) {
		return
	}
	c.forgot = false
	c.total, _ = m.witness("evicted_total")
	c.lost, c.evicted = 0, m.state.Hashes[m.facts.Layout.Witness()]["evicted_keys"]
}

func (c *c5) end(m *moment) {
	if total, _ := m.witness("evicted_total"); total != c.total {
		m.violation("C5", "the total says %d at the end, %d were evicted", total, c.total)
	}
	if c.lost > 0 {
		m.violation("C5", "the total of %d was lost with the witness, which nobody has made anew", c.lost)
	}
}
