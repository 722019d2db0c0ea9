package chaos

import (
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/registry"
)

// Command is one write as the server recorded it: its name in upper case, then its arguments.
type Command []string

// Event is what happened at one instant: a command, or all that one script or transaction did.
type Event struct {
	// Part is which part of the run's history it stands in, Offset where its first byte is there, to look it up.
	Part   int
	Offset int64
	// Second is the server's time in whole Unix seconds, 0 if the file does not say. The event is not older.
	Second   int64
	Commands []Command
}

// History is the server's own total order of writes.
type History []Event

// FaultKey is the harness' signature: what it does to the keyspace by its own hand is done in one MULTI with a
// SET of this key to a word for it. An event that has it is the fault itself, and the code under test is not judged by it.
const FaultKey = "chaos:fault"

// LifeCommand begins an event that stands for a new life of the server with another memory than the last one's, as after a
// restart without an append-only file or a failover: its argument is why, and the commands behind it in the same event write
// what the new life began with. No server knows it: [Follow] writes it, or the harness.
const LifeCommand = "ROLLCALL.LIFE"

// fault returns what the harness did, "" if it was not the harness.
func (e *Event) fault() string {
	for _, c := range e.Commands {
		if c[0] == "SET" && len(c) > 2 && c[1] == FaultKey {
			return c[2]
		}
	}
	return ""
}

// life tells whether a new life of the server begins.
func (e *Event) life() bool { return len(e.Commands) > 0 && e.Commands[0][0] == LifeCommand }

// span bounds when an event happened. Few tell it to the millisecond; the others happened between their neighbours.
type span struct{ from, until time.Time }

// spans returns every event's.
func (h History) spans(f *Facts) []span {
	s := make([]span, len(h))
	stamps := make([]time.Time, len(h))
	var now time.Time
	ends := make(map[string]string)
	for i := range h {
		if stamps[i] = h[i].stamp(f, ends); stamps[i].After(now) {
			now = stamps[i]
		} else if second := time.Unix(h[i].Second, 0); h[i].Second > 0 && second.After(now) {
			now = second
		}
		s[i].from = now
	}
	next := time.Unix(1<<40, 0) // nothing is known of what comes after the end
	for i := len(h) - 1; i >= 0; i-- {
		if at := stamps[i]; !at.IsZero() {
			next = at.Add(time.Millisecond) // stamps are cut off
		}
		s[i].until = next
	}
	return s
}

// stamp is the time that an event itself tells, in milliseconds: of a beat, of the witness' tick, of the lease's
// expiry. The zero time if it tells none: what was written by hand, or copied from a former life, may say anything.
// ends has when each heartbeat is to end, by key, and is kept up to date: an end that is written again as it was says nothing.
func (e *Event) stamp(f *Facts, ends map[string]string) (at time.Time) {
	if e.life() || e.fault() != "" {
		return time.Time{}
	}
	heartbeats := f.Layout.Heartbeat("")
	later := func(ms string, ago time.Duration) {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			if t := time.UnixMilli(n).Add(-ago); t.After(at) {
				at = t
			}
		}
	}
	for _, c := range e.Commands {
		if len(c) < 3 {
			continue
		}
		switch key := c[1]; {
		case c[0] == "SET" && strings.HasPrefix(key, heartbeats):
			ms, _, _ := strings.Cut(c[2], "/")
			later(ms, 0)
			ends[key] = option(c[3:], "PXAT")
		case c[0] == "PEXPIREAT" && strings.HasPrefix(key, heartbeats):
			if ends[key] != c[2] {
				_, ttl := f.heartbeat(strings.TrimPrefix(key, heartbeats))
				later(c[2], ttl)
			}
			ends[key] = c[2]
		case key == f.Layout.Lease() && c[0] == "SET":
			later(option(c[3:], "PXAT"), f.LeaseTTL)
		case key == f.Layout.Lease() && c[0] == "PEXPIREAT":
			later(c[2], f.LeaseTTL)
		case key == f.Layout.Witness() && c[0] == "HSET":
			later(option(c[2:], "last"), 0)
		}
	}
	return at
}

// option is the argument behind name, "" if there is none.
func option(args []string, name string) string {
	for i := 0; i+1 < len(args); i++ {
		if args[i] == name {
			return args[i+1]
		}
	}
	return ""
}

// Batch is one guarded delete as H has it: the audit's record, and what was deleted in the same step.
type Batch struct {
	At       time.Time
	Epoch, N uint64
	Leader   string
	Owner    string // judged dead
	IMEIs    []string
}

// Term is one opening of the audit.
type Term struct {
	At     time.Time
	Epoch  uint64
	Leader string
	Token  string // of the lease
}

// record is what an XADD to the audit says.
type record struct {
	epoch, n uint64
	fields   map[string]string
}

// recordIn returns the audit's record in an event, nil if there is none.
func recordIn(e *Event, l registry.Layout) *record {
	for _, c := range e.Commands {
		if c[0] != "XADD" || c[1] != l.Audit() {
			continue
		}
		id, fields := streamEntry(c)
		epoch, n, _ := strings.Cut(id, "-")
		r := &record{fields: make(map[string]string)}
		r.epoch, _ = strconv.ParseUint(epoch, 10, 64)
		r.n, _ = strconv.ParseUint(n, 10, 64)
		for i := 0; i+1 < len(fields); i += 2 {
			r.fields[fields[i]] = fields[i+1]
		}
		return r
	}
	return nil
}

// streamEntry returns the id and the fields of an XADD, whatever options stand before them.
func streamEntry(c Command) (id string, fields []string) {
	for i := 2; i < len(c); i++ {
		switch strings.ToUpper(c[i]) {
		case "NOMKSTREAM", "MAXLEN", "MINID", "LIMIT", "=", "~":
			continue
		}
		switch strings.ToUpper(c[i-1]) {
		case "MAXLEN", "MINID", "LIMIT", "=", "~": // a number that belongs to the option
			continue
		}
		return c[i], c[i+1:]
	}
	return "", nil
}
