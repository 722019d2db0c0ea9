package history

import "strings"

// Command is a write as the server recorded it, its name in upper case.
type Command []string

// Event is one instant: a command, or all that one script or transaction did.
type Event struct {
	// Part and Offset locate its first byte in the run's history.
	Part   int
	Offset int64
	// Second is the server's, Unix, 0 if the file has none. The event is not older.
	Second   int64
	Commands []Command
}

// History is the server's own total order of writes.
type History []Event

// FaultKey is the harness' signature: it changes the keyspace in one MULTI with a SET of this key
// to a word for the fault. The code under test is not judged by such an event.
const FaultKey = "chaos:fault"

// LifeCommand begins an event for a new life of the server, whose memory differs from the last
// one's, as after a restart without an append-only file or a failover. The event's other commands
// write the content with which it began. Redis does not know it: [Read] inserts it.
const LifeCommand = "ROLLCALL.LIFE"

// Fault is the harness' word for its fault.
func (e *Event) Fault() string {
	for _, c := range e.Commands {
		if c[0] == "SET" && len(c) > 2 && c[1] == FaultKey {
			return c[2]
		}
	}
	return ""
}

// Life reports whether a new life of the server begins.
func (e *Event) Life() bool { return len(e.Commands) > 0 && e.Commands[0][0] == LifeCommand }

// Option is the argument after name.
func Option(args []string, name string) string {
	for i := 0; i+1 < len(args); i++ {
		if args[i] == name {
			return args[i+1]
		}
	}
	return ""
}

// StreamEntry returns an XADD's id and fields.
func StreamEntry(c Command) (id string, fields map[string]string) {
	for i := 2; i < len(c); i++ {
		switch strings.ToUpper(c[i]) {
		case "NOMKSTREAM", "MAXLEN", "MINID", "LIMIT", "=", "~":
			continue
		}
		switch strings.ToUpper(c[i-1]) {
		case "MAXLEN", "MINID", "LIMIT", "=", "~": // the option's number
			continue
		}
		fields = make(map[string]string)
		for k := i + 1; k+1 < len(c); k += 2 {
			fields[c[k]] = c[k+1]
		}
		return c[i], fields
	}
	return "", nil
}
