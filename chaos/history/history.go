package history

import "strings"

// Command is a write as recorded, its name in upper case.
type Command []string

// Event is one instant: a command, or a whole script or transaction.
type Event struct {
	// Part and Offset locate its first byte.
	Part   int
	Offset int64
	// Second is Unix time by the server, 0 if the file has none. The event is not older.
	Second   int64
	Commands []Command
}

// History has all events in order.
type History []Event

// FaultKey signs a change by the harness: a SET of this key to a word for the fault, in the same
// MULTI.
const FaultKey = "chaos:fault"

// LifeCommand begins an event for a new life of the server, with another memory than the last. The
// event's other commands write its first content. Redis does not know it: [Read] inserts it.
const LifeCommand = "ROLLCALL.LIFE"

// Fault returns the harness' word for its fault.
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

// Option returns the argument after name.
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
