package judge

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Violation is a forbidden event.
type Violation struct {
	Check  string // C1 … C9, or "history": a wrong assumption of the judge
	At     time.Time
	Part   int   // from 0
	Offset int64 // in the part
	What   string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %s, part %d, byte %d: %s", v.Check, clock(v.At), v.Part+1, v.Offset, v.What)
}

// moment has the state just before a command.
type moment struct {
	facts   *Facts
	late    *late
	sockets map[string][]*Socket // by IMEI
	state   *history.Keyspace
	now     time.Time // not before
	until   time.Time // not after
	event   *history.Event
	life    bool            // a new life of the server begins
	fault   string          // by the harness
	record  *record         // in this event's log
	command history.Command // nil after the whole event
	changes []change        // of entries
	verdict *Verdict
}

type change struct{ imei, from, to string }

func (m *moment) violation(check, format string, args ...any) {
	v := Violation{check, m.now, m.event.Part, m.event.Offset, fmt.Sprintf(format, args...)}
	m.verdict.Violations = append(m.verdict.Violations, v)
}

func (m *moment) key() string {
	if len(m.command) < 2 {
		return ""
	}
	return m.command[1]
}

func (m *moment) deletes(key string) bool {
	switch m.command[0] {
	case "FLUSHALL", "FLUSHDB":
		return true
	case "DEL", "UNLINK":
		return slices.Contains(m.command[1:], key)
	}
	return false
}

// evicts: entries are removed under a batch's log record.
func (m *moment) evicts() bool { return m.record != nil && m.record.n > 0 && m.takesEntries() }

// answers: a dead instance's commands are removed likewise.
func (m *moment) answers() bool {
	return m.record != nil && m.record.n > 0 &&
		m.command[0] == "XDEL" && strings.HasPrefix(m.key(), m.facts.outbound(""))
}

// succeeds returns the entries that the command overwrites in a step in which its owner listened:
// owners succeed the dead that way.
func (m *moment) succeeds() (taken []change) {
	if m.record != nil || m.command[0] != "HSET" || m.key() != m.facts.Layout.Registry() || !m.witnesses("last") {
		return nil
	}
	for pair := range slices.Chunk(m.command[2:], 2) {
		if from := m.owner(pair[0]); from != "" && from != pair[1] {
			taken = append(taken, change{pair[0], from, pair[1]})
		}
	}
	return taken
}

func (m *moment) takesEntries() bool {
	return m.command[0] == "HDEL" && m.key() == m.facts.Layout.Registry()
}

// beats returns whose heartbeat the command writes, and its boot token.
func (m *moment) beats() (id, token string) {
	id, is := m.heartbeatOf(m.key())
	if !is || m.command[0] != "SET" {
		return "", ""
	}
	_, token, _ = strings.Cut(m.command[2], "/")
	return id, token
}

func (m *moment) heartbeatOf(key string) (id string, is bool) {
	return strings.CutPrefix(key, m.facts.Layout.Heartbeat(""))
}

// witnesses takes "last" for a tick, "since" for a hold.
func (m *moment) witnesses(field string) bool {
	return slices.ContainsFunc(m.event.Commands, func(c history.Command) bool {
		return c[0] == "HSET" && c[1] == m.facts.Layout.Witness() && history.Option(c[2:], field) != ""
	})
}

func (m *moment) opens() bool {
	return m.record != nil && m.record.n == 0 && m.command[0] == "XADD" && m.key() == m.facts.Layout.Log()
}

func (m *moment) newest() (t Term) {
	if n := len(m.verdict.Terms); n > 0 {
		t = m.verdict.Terms[n-1]
	}
	return t
}

func (m *moment) reason() string { return m.state.Hashes[m.facts.Layout.Witness()]["reason"] }

func (m *moment) entries() map[string]string { return m.state.Hashes[m.facts.Layout.Registry()] }

func (m *moment) owner(imei string) string { return m.entries()[imei] }

func (m *moment) liveSocket(imei, instance string) *Socket {
	for _, s := range m.sockets[imei] {
		if s.Instance == instance && s.LiveAt(m.now) && s.LiveAt(m.until) {
			return s
		}
	}
	return nil
}

func (m *moment) witness(field string) (ms int64, there bool) {
	ms, err := strconv.ParseInt(m.state.Hashes[m.facts.Layout.Witness()][field], 10, 64)
	return ms, err == nil
}

func (m *moment) note() {
	switch {
	case m.life: // as a whole, at its end
	case (m.command[0] == "HSET" || m.command[0] == "HMSET") && m.key() == m.facts.Layout.Registry():
		for pair := range slices.Chunk(m.command[2:], 2) {
			m.noteChange(pair[0], pair[1])
		}
	case m.takesEntries():
		for _, imei := range m.command[2:] {
			m.noteChange(imei, "")
		}
	case m.deletes(m.facts.Layout.Registry()):
		for imei := range m.entries() {
			m.noteChange(imei, "")
		}
	}
}

func (m *moment) noteChange(imei, to string) {
	if from := m.owner(imei); from != to {
		m.changes = append(m.changes, change{imei, from, to})
	}
}

func (m *moment) noteLife(last map[string]string) {
	for imei, from := range last {
		if to := m.owner(imei); to != from {
			m.changes = append(m.changes, change{imei, from, to})
		}
	}
	for imei, to := range m.entries() {
		if _, had := last[imei]; !had {
			m.changes = append(m.changes, change{imei, "", to})
		}
	}
}

// check reports through moment.violation.
type check interface {
	before(*moment) // each command
	after(*moment)  // each event
	// in place of both, after a fault of the harness or at the start of a new life: nobody is
	// judged by these
	struck(*moment)
	end(*moment) // of the history
}

type passive struct{}

func (passive) before(*moment) {}
func (passive) after(*moment)  {}
func (passive) struck(*moment) {}
func (passive) end(*moment)    {}

// Judge finds what violates C1 to C6, C8 and C9. It depends on nothing else, so that old runs can
// be judged again.
func Judge(h history.History, f Facts) *Verdict {
	v := &Verdict{Final: history.NewKeyspace(), facts: &f}
	m := &moment{facts: &f, late: newLate(&f), state: v.Final, verdict: v, sockets: make(map[string][]*Socket)}
	for i := range f.Sockets {
		s := &f.Sockets[i]
		m.sockets[s.IMEI] = append(m.sockets[s.IMEI], s)
	}
	checks := []check{
		c1{}, newC2(), newC3(), &c4{}, newC4Holds(), &c5{}, newC6(&f), newC8(&f), newC9(), chronicle{},
	}
	spans := Spans(h, &f)
	for i := range h {
		m.event, m.now, m.until = &h[i], spans[i].From, spans[i].Until
		m.play(checks)
	}
	if m.event != nil {
		for _, c := range checks {
			c.end(m)
		}
	}
	v.at = m.now
	return v
}

func (m *moment) play(checks []check) {
	m.life, m.fault, m.record, m.changes = m.event.Life(), m.event.Fault(), nil, m.changes[:0]
	judged := !m.life && m.fault == ""
	if judged {
		m.record = recordIn(m.event, m.facts.Layout)
	}
	last := m.entries() // a new life has a map of its own
	for _, m.command = range m.event.Commands {
		if judged {
			for _, c := range checks {
				c.before(m)
			}
		}
		m.note()
		if err := m.state.Apply(m.command, m.facts.Layout); err != nil {
			m.violation("history", "%v", err)
		}
	}
	m.command = nil
	if m.life {
		m.noteLife(last)
	}
	for _, c := range checks {
		if judged {
			c.after(m)
		} else {
			c.struck(m)
		}
	}
}

// Files of a run's folder.
const (
	factsFile  = "facts.json"
	partPrefix = "part-"
)

// Save stores a run's facts and history, which may still be growing.
func Save(dir string, f Facts, parts ...string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, factsFile), append(text, '\n'), 0o644)
	}
	for i := 0; err == nil && i < len(parts); i++ {
		err = history.CopyPart(parts[i], filepath.Join(dir, fmt.Sprintf("%s%03d", partPrefix, i+1)))
	}
	if err != nil {
		return fmt.Errorf("judge: save: %w", err)
	}
	return nil
}

// Load reads what Save stored.
func Load(dir string) (history.History, Facts, error) {
	var f Facts
	text, err := os.ReadFile(filepath.Join(dir, factsFile))
	if err != nil {
		return nil, f, fmt.Errorf("judge: load: %w", err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, f, fmt.Errorf("judge: load %s: %w", factsFile, err)
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, f, fmt.Errorf("judge: load: %w", err)
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partPrefix) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	if len(parts) == 0 {
		return nil, f, fmt.Errorf("judge: load %s: no part of a history: %w", dir, fs.ErrNotExist)
	}
	h, err := history.Read(parts...)
	return h, f, err
}
