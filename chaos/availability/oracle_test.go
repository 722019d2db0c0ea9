package availability

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Names of the mirror's keys.
const (
	online      = "mitras:online"
	deactivated = "mitras:deactivated"
	versions    = "mitras:version"
	seeded      = "mitras:seeded"
	fed         = "mitras:fed"
	capacity    = "mitra:capacity:"
	heartbeat   = "mitra:heartbeat:"
)

const isoMS = "2006-01-02T15:04:05.000Z"

// model is what the server held of the mirror.
type model struct {
	strings map[string]string
	members map[string]map[string]string // of sets and hashes
}

func newModel() *model {
	return &model{map[string]string{}, map[string]map[string]string{}}
}

// apply plays a command, and tells what of the mirror it is about: ids, or all. What it does not
// know is told: then nothing that follows could be relied on.
func (m *model) apply(c history.Command) (ids []string, all, known bool) {
	switch c[0] {
	case "FLUSHALL", history.LifeCommand:
		*m = *newModel()
		return nil, true, true
	case "PUBLISH", "SCRIPT", "FUNCTION":
		return nil, false, true
	}
	if len(c) < 2 {
		return nil, false, false
	}
	key, rest := c[1], c[2:]
	if key == fed || !strings.HasPrefix(key, "mitra") && c[0] != "DEL" && c[0] != "UNLINK" {
		return nil, false, true
	}
	of := func(key string) {
		if id, ok := strings.CutPrefix(key, capacity); ok {
			ids = append(ids, id)
		}
	}
	switch c[0] {
	case "SET":
		m.strings[key] = rest[0]
		of(key)
	case "DEL", "UNLINK":
		for _, key := range c[1:] {
			delete(m.strings, key)
			if m.members[key] != nil {
				all = true
			}
			delete(m.members, key)
			of(key)
		}
	case "SADD", "HSET", "HMSET":
		if m.members[key] == nil {
			m.members[key] = map[string]string{}
		}
		for i := 0; i < len(rest); i++ {
			member, value := rest[i], ""
			if c[0] != "SADD" {
				i++
				value = rest[i]
			}
			m.members[key][member] = value
			ids = append(ids, member)
		}
	case "SREM", "HDEL":
		for _, member := range rest {
			delete(m.members[key], member)
			ids = append(ids, member)
		}
	case "RPUSH": // by the test's own hand
		of(key)
	case "PEXPIREAT", "PERSIST":
	default:
		return nil, false, false
	}
	return ids, all, true
}

// shows is what readers are shown of a mitra, and as which version; 0 if there is none.
func (m *model) shows(id string) (s state, version int64, fine bool) {
	_, s.online = m.members[online][id]
	_, off := m.members[deactivated][id]
	s.active = !off
	text, has := m.members[versions][id]
	version, err := strconv.ParseInt(text, 10, 64)
	n, err2 := strconv.Atoi(m.strings[capacity+id])
	s.sessions = n
	return s, version, has && err == nil && err2 == nil && n >= 0
}

// gone tells whether the mirror has nothing of a mitra.
func (m *model) gone(id string) bool {
	_, on := m.members[online][id]
	_, off := m.members[deactivated][id]
	_, has := m.members[versions][id]
	_, n := m.strings[capacity+id]
	return !on && !off && !has && !n
}

// oracle plays what the server wrote, and judges each state that it ever showed.
type oracle struct {
	*model
	tally
	known   map[string]map[int64][]change
	partner map[string]map[int64][]change // the others of one transaction
	last    map[string]int64              // version, since the mirror was emptied
	tainted map[string]bool               // by the test's own hand, until written anew
	spoiled bool                          // all were; clean are those that were written since
	clean   map[string]bool
}

// judgeMirror judges the history of Redis by that of Postgres: each state that was shown is one
// that was committed, a version is never followed by an older one, a session that changes hands is
// counted once, and the mirror is certified only when it is whole.
func judgeMirror(h history.History, t truth) tally {
	o := &oracle{
		model: newModel(), known: map[string]map[int64][]change{},
		partner: map[string]map[int64][]change{}, last: map[string]int64{}, tainted: map[string]bool{},
		clean: map[string]bool{},
	}
	together := map[uint64][]change{}
	for _, c := range t.changes {
		if o.known[c.mitra] == nil {
			o.known[c.mitra], o.partner[c.mitra] = map[int64][]change{}, map[int64][]change{}
		}
		o.known[c.mitra][c.version] = append(o.known[c.mitra][c.version], c)
		together[c.xid] = append(together[c.xid], c)
	}
	for _, some := range together {
		if len(some) != 2 || some[0].mitra == some[1].mitra { // no session changed hands
			continue
		}
		for i, c := range some {
			o.partner[c.mitra][c.version] = append(o.partner[c.mitra][c.version], some[1-i])
		}
	}
	before := latest(h)
	for i := range h {
		o.event(&h[i], before[i])
	}
	// Another writer may be the first to bring one of the two states, alone, if it looks between the
	// commit and the apply. Most are brought by the reroute itself.
	if o.halves > 10 && 3*o.halves > o.moves {
		o.wrong("of %d states of reroutes %d were shown without those of the other mitra", o.moves, o.halves)
	}
	return o.tally
}

// latest is for each event when it had happened, by the clock of a heartbeat that the server took
// behind it; zero if there is none.
func latest(h history.History) []time.Time {
	all, at := make([]time.Time, len(h)), time.Time{}
	for i := len(h) - 1; i >= 0; i-- {
		if c := h[i].Commands; len(c) == 1 && c[0][0] == "SET" && strings.HasPrefix(c[0][1], heartbeat) {
			if t, err := time.Parse(isoMS, c[0][2]); err == nil {
				at = t.Add(time.Millisecond)
			}
		}
		all[i] = at
	}
	return all
}

func (o *oracle) event(e *history.Event, before time.Time) {
	o.events++
	touched, everything := map[string]bool{}, false
	certified, written := "", map[string]bool{}
	for _, c := range e.Commands {
		ids, all, known := o.apply(c)
		if !known {
			o.wrong("at %d:%d: command %.80q is not known", e.Part, e.Offset, c)
		}
		everything = everything || all
		for _, id := range ids {
			touched[id] = true
		}
		if len(c) > 2 && c[0] == "SET" {
			if id, ok := strings.CutPrefix(c[1], capacity); ok {
				written[id] = true
				if n, err := strconv.Atoi(c[2]); e.Fault() == "" && (err != nil || n < 0) {
					o.wrong("%s: its counter is %s", id, c[2])
				}
			}
			if c[1] == seeded {
				certified = c[2]
			}
		}
	}
	switch {
	case everything:
		if o.spoiled = e.Fault() != "FLUSHALL" && !e.Life(); !o.spoiled { // else something is left
			clear(o.tainted)
		}
		clear(o.last)
		clear(o.clean)
		return
	case e.Fault() != "":
		for id := range touched {
			o.tainted[id] = true
			delete(o.clean, id)
			delete(o.last, id)
		}
		return
	}
	for id := range touched {
		if written[id] {
			delete(o.tainted, id)
			o.clean[id] = true
		}
		if o.tainted[id] || o.spoiled && !o.clean[id] {
			continue
		}
		if o.gone(id) {
			delete(o.last, id)
			continue
		}
		o.judge(e, id, before)
	}
	if certified != "" {
		o.certified(certified)
	}
}

// judge judges what is shown of one mitra now.
func (o *oracle) judge(e *history.Event, id string, before time.Time) {
	o.shown++
	s, version, fine := o.shows(id)
	if !fine {
		o.wrong("at %d:%d: %s: torn: %+v, version %q, counter %q", e.Part, e.Offset, id, s,
			o.members[versions][id], o.strings[capacity+id])
		return
	}
	if version < o.last[id] {
		o.wrong("at %d:%d: %s: version %d behind %d", e.Part, e.Offset, id, version, o.last[id])
	}
	o.last[id] = version
	var is *change
	for i, c := range o.known[id][version] {
		if c.state == s && (is == nil || c.committed.Before(is.committed)) { // of two timelines either
			is = &o.known[id][version][i]
		}
	}
	if is == nil {
		o.wrong("at %d:%d: %s: %+v at version %d, which was committed as %v", e.Part, e.Offset, id, s, version,
			o.known[id][version])
		return
	}
	if !before.IsZero() && is.committed.After(before) {
		o.wrong("at %d:%d: %s: version %d was shown before %s, and committed at %s", e.Part, e.Offset, id, version,
			before.Format(clock), is.committed.Format(clock))
	}
	if o.strings[seeded] == "" || o.spoiled {
		return
	}
	for _, other := range o.partner[id][version] {
		_, there, _ := o.shows(other.mitra)
		if is.by != "session" || o.tainted[other.mitra] {
			continue
		}
		if o.moves++; there < other.version {
			o.halves++
		}
	}
}

// certified: all whom Postgres had when the seeding began have to be there.
func (o *oracle) certified(since string) {
	o.seeds++
	at, err := time.Parse(isoMS, since)
	if err != nil {
		o.wrong("the mirror is certified as of %q", since)
		return
	}
	for id := range maps.Keys(o.known) {
		for _, all := range o.known[id] {
			for _, c := range all {
				if c.committed.IsZero() || !c.committed.Before(at) {
					continue
				}
				if _, has := o.members[versions][id]; !has && !o.tainted[id] {
					o.wrong("the mirror was certified as of %s without %s", since, id)
					return
				}
			}
		}
	}
}
