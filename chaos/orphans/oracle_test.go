package orphans

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/guard"
)

// layout names the worker's own keys: those of the default CLEANUP_PREFIX.
var layout = guard.Layout{Prefix: "{cleanup}:"}

// stepKey is written in each transaction of the backend: what lives from now on (+), and what lives
// no longer (-), as words.
const stepKey = "backend:step"

// model is what the server held, as far as it is the backend's, and what lived.
type model struct {
	strings map[string]string
	members map[string]map[string]bool // of sets, sorted sets and hashes
	lives   map[string]bool            // room:, user:, match:, bot: and its name
	intents map[string]string          // that stand: id -> what went by it, "" if nothing did
}

func newModel() *model {
	m := &model{lives: map[string]bool{}}
	m.clear()
	return m
}

// clear loses what the server held. What lives does so elsewhere.
func (m *model) clear() {
	m.strings, m.members, m.intents = map[string]string{}, map[string]map[string]bool{}, map[string]string{}
}

func (m *model) exists(key string) bool {
	_, is := m.strings[key]
	return is || len(m.members[key]) > 0
}

func (m *model) add(key string, members ...string) {
	if m.members[key] == nil {
		m.members[key] = map[string]bool{}
	}
	for _, member := range members {
		m.members[key][member] = true
	}
}

func (m *model) remove(key string, members ...string) {
	for _, member := range members {
		delete(m.members[key], member)
	}
}

// every second one, from the first on.
func everySecond(words []string) (some []string) {
	for i := 0; i < len(words); i += 2 {
		some = append(some, words[i])
	}
	return some
}

// apply plays one command on the backend's keys. What it does not know is an error: then nothing
// that follows could be relied on.
func (m *model) apply(c history.Command) error {
	switch c[0] {
	case "FLUSHALL", history.LifeCommand:
		m.clear()
		return nil
	case "PUBLISH", "SCRIPT", "FUNCTION":
		return nil
	}
	if len(c) > 2 && c[0] == "HSET" && strings.HasPrefix(c[1], intentsKey) {
		for _, id := range everySecond(c[2:]) {
			m.intents[id] = ""
		}
	}
	if len(c) < 2 || !ofBackend(c[1]) {
		return nil
	}
	key, rest := c[1], c[2:]
	switch c[0] {
	case "SET":
		delete(m.members, key)
		m.strings[key] = rest[0]
		if key == stepKey {
			for word := range strings.FieldsSeq(rest[0]) {
				if name, dies := strings.CutPrefix(word, "-"); dies {
					delete(m.lives, name)
				} else {
					m.lives[strings.TrimPrefix(word, "+")] = true
				}
			}
		}
	case "DEL", "UNLINK":
		for _, key := range c[1:] {
			delete(m.strings, key)
			delete(m.members, key)
		}
	case "HSET":
		m.add(key, everySecond(rest)...)
	case "SADD":
		m.add(key, rest...)
	case "ZADD":
		m.add(key, everySecond(rest[1:])...)
	case "HDEL", "SREM", "ZREM":
		m.remove(key, rest...)
	case "SMOVE":
		m.remove(key, rest[1])
		m.add(rest[0], rest[1])
	case "RENAME":
		delete(m.strings, key)
		delete(m.members, key)
	case "PEXPIREAT", "PERSIST":
	default:
		return fmt.Errorf("command %q is not known", c)
	}
	return nil
}

// ofBackend tells the backend's keys from the worker's, its bins, and what the test fills memory
// with.
func ofBackend(key string) bool {
	return !strings.HasPrefix(key, layout.Prefix) && !strings.HasPrefix(key, asideBegin) &&
		!strings.HasPrefix(key, fillKey) && key != history.FaultKey
}

// asideBegin begins the names of what was moved aside: the id of its intent follows.
const asideBegin = "orphan:bin:"

// intentsKey begins the names of the hashes of intents.
var intentsKey = layout.Prefix + "orphan:intents:"

// fillKey begins the names of keys that only fill the memory.
const fillKey = "chaos:fill:"

// living says why a thing that goes must not; "": it may. member is of a sorted set.
func (m *model) living(key, member string) string {
	kind := func(prefix string) (string, bool) { return strings.CutPrefix(key, prefix) }
	if user, is := kind("queue:reservation:"); is {
		var seat struct{ RoomID string }
		if json.Unmarshal([]byte(m.strings[key]), &seat) != nil || seat.RoomID == "" {
			return "its reservation is in the making"
		}
		if m.lives["room:"+seat.RoomID] {
			return "room " + seat.RoomID + " of " + user + " lives"
		}
		return ""
	}
	if joined, is := kind("queue:joinedAt:"); is || key == queue {
		user := joined
		if key == queue {
			user = member
		}
		switch {
		case m.lives["user:"+user]:
			return "user " + user + " waits"
		case m.exists("queue:reservation:" + user):
			return "user " + user + " has a seat"
		}
		return ""
	}
	if match, is := kind("match:"); is {
		if id, _, _ := strings.Cut(match, ":"); m.lives["match:"+id] {
			return "match " + id + " is not over"
		}
		return ""
	}
	if bot, is := kind("bots:state:"); is {
		if m.lives["bot:"+bot] {
			return "bot " + bot + " runs"
		}
		return ""
	}
	return "no rule is about it"
}

// gone is a thing that a command takes away.
type gone struct{ key, member string }

func (g gone) String() string { return strings.TrimSuffix(g.key+" "+g.member, " ") }

// takes are the things of the backend that a command takes away.
func (m *model) takes(c history.Command) (all []gone) {
	if len(c) < 2 || !ofBackend(c[1]) {
		return nil
	}
	switch c[0] {
	case "DEL", "UNLINK":
		for _, key := range c[1:] {
			if m.exists(key) {
				all = append(all, gone{key: key})
			}
		}
	case "RENAME":
		all = append(all, gone{key: c[1]})
	case "ZREM", "SREM", "HDEL":
		for _, member := range c[2:] {
			all = append(all, gone{c[1], member})
		}
	}
	return all
}

// verdict is what the oracle says of a history.
type verdict struct {
	Wrong   []string          // each is a delete that must not be, or one that was recorded wrongly
	Records map[string]uint64 // candidates in the log, by the instance that led
	Rules   map[string]uint64 // the same by rule
	Steps   int               // of the backend
	Evicted int               // keys of the backend that the server evicted
	Terms   int
}

// tolerated is what a row takes as given.
type tolerated struct {
	evictions bool // the server evicts keys, or the test deletes some by its hand
}

// judge plays a history.
func judge(h history.History, allow tolerated) (v verdict) {
	v = verdict{Records: map[string]uint64{}, Rules: map[string]uint64{}}
	m := newModel()
	for i := range h {
		e := &h[i]
		wrong := func(format string, args ...any) {
			v.Wrong = append(v.Wrong, fmt.Sprintf("part %d, byte %d: ", e.Part, e.Offset)+fmt.Sprintf(format, args...))
		}
		if err := v.event(m, e, allow, wrong); err != nil {
			wrong("%v", err)
			return v
		}
	}
	return v
}

func (v *verdict) event(m *model, e *history.Event, allow tolerated, wrong func(string, ...any)) error {
	var record *record
	var settled []string
	step, intent := false, "" // of what goes
	for _, c := range e.Commands {
		step = step || len(c) > 1 && c[0] == "SET" && c[1] == stepKey
		if r := recordOf(c); r != nil {
			record = r
		}
		if len(c) > 2 && c[0] == "XADD" && c[1] == layout.Log() && strings.HasSuffix(c[2], "-0") {
			v.Terms++
		}
		if len(c) > 2 && c[0] == "HDEL" && strings.HasPrefix(c[1], intentsKey) {
			settled = append(settled, c[2:]...)
		}
		if name := asideOf(c); name != "" {
			intent, _, _ = strings.Cut(strings.TrimPrefix(name, asideBegin), ":")
		}
	}
	for _, c := range e.Commands {
		all := m.takes(c)
		_, stands := m.intents[intent]
		switch {
		case e.Fault() != "":
		case step:
			// its own
		case stands:
			for _, g := range all {
				if why := m.living(g.key, g.member); why != "" {
					wrong("%s went by intent %s: %s", g, intent, why)
				}
				m.intents[intent] = g.String()
			}
		case len(all) > 0 && c[0] == "DEL" && len(e.Commands) == 1 && allow.evictions:
			v.Evicted += len(all)
		case len(all) > 0:
			wrong("%v went without an intent: %q", all, c)
		}
		if err := m.apply(c); err != nil {
			return err
		}
	}
	if step {
		v.Steps++
	}
	if record != nil {
		v.Records[record.leader] += uint64(len(record.names))
		v.Rules[record.sweep] += uint64(len(record.names))
		record.fits(m.settle(settled), wrong)
	}
	return nil
}

// asideOf is the new name of what a command moves aside, or "".
func asideOf(c history.Command) string {
	switch {
	case len(c) > 2 && c[0] == "RENAME" && strings.HasPrefix(c[2], asideBegin):
		return c[2]
	case len(c) > 2 && c[0] == "SET" && strings.HasPrefix(c[1], asideBegin):
		return c[1]
	}
	return ""
}

// settle ends intents, and returns what went by them.
func (m *model) settle(ids []string) (went []string) {
	for _, id := range ids {
		if name := m.intents[id]; name != "" {
			went = append(went, name)
		}
		delete(m.intents, id)
	}
	return went
}

// record is one of the worker's log.
type record struct {
	id, leader, sweep string
	count             int
	names             []string
}

// recordOf is the record of deletes that a command writes; nil: it writes none.
func recordOf(c history.Command) *record {
	if c[0] != "XADD" || c[1] != layout.Log() {
		return nil
	}
	id, f := history.StreamEntry(c)
	if strings.HasSuffix(id, "-0") { // a term
		return nil
	}
	if _, is := f["intents"]; is {
		return nil
	}
	r := &record{id: id, leader: f["leader"], sweep: f["sweep"]}
	r.count, _ = strconv.Atoi(f["count"])
	if json.Unmarshal([]byte(f["keys"]), &r.names) != nil {
		r.names = []string{"?"}
	}
	return r
}

// fits reports whether a record names exactly the keys and members that went.
func (r *record) fits(went []string, wrong func(string, ...any)) {
	if r.count != len(r.names) {
		wrong("record %s counts %d, and names %d", r.id, r.count, len(r.names))
	}
	slices.Sort(went)
	if slices.Sort(r.names); !slices.Equal(went, r.names) {
		wrong("record %s names %q, and %q went", r.id, r.names, went)
	}
}
