package history

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/registry"
)

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

// Keyspace models the server's content. A key whose time is up exists until the history deletes it,
// as it does for a script.
type Keyspace struct {
	Strings map[string]string
	Hashes  map[string]map[string]string
	Sets    map[string]map[string]struct{}
	Streams map[string]string    // newest id; entries are not kept
	Expiry  map[string]time.Time // of strings
}

// NewKeyspace returns an empty model.
func NewKeyspace() *Keyspace {
	k := &Keyspace{}
	k.clear()
	return k
}

func (k *Keyspace) clear() {
	k.Strings = make(map[string]string)
	k.Hashes = make(map[string]map[string]string)
	k.Sets = make(map[string]map[string]struct{})
	k.Streams = make(map[string]string)
	k.Expiry = make(map[string]time.Time)
}

// Exists reports whether a key of any type exists.
func (k *Keyspace) Exists(key string) bool {
	_, s := k.Strings[key]
	_, h := k.Hashes[key]
	_, t := k.Sets[key]
	_, x := k.Streams[key]
	return s || h || t || x
}

// Apply plays a command, unless its key is foreign. An unknown command is an error: no conclusion
// from the history would be reliable.
func (k *Keyspace) Apply(c Command, l registry.Layout) error {
	switch c[0] {
	case "FLUSHALL", "FLUSHDB", LifeCommand:
		k.clear()
		return nil
	case "PUBLISH", "SPUBLISH", "SCRIPT", "FUNCTION":
		return nil
	}
	effect, known := effects[c[0]]
	var err error
	switch {
	case !known || len(c) < 2:
		err = fmt.Errorf("history: command %.100q is not known", c)
	default:
		err = effect(k, c[1], c[2:])
	}
	if err == nil || c[0] == "EVAL" || c[0] == "EVALSHA" || len(c) < 2 {
		return err
	}
	if slices.ContainsFunc(c[1:], func(key string) bool { return ours(l, key) }) {
		return err
	}
	return nil // a foreign key
}

// ours includes the keys that lease derives.
func ours(l registry.Layout, key string) bool {
	switch key {
	case l.Registry(), l.Roster(), l.Lease(), EpochKey(l.Lease()), l.Witness(), l.Paused(), l.Log():
		return true
	}
	return strings.HasPrefix(key, l.Heartbeat("")) || strings.HasPrefix(key, l.Devices(""))
}

// EpochKey returns the key from which epochs are drawn, in the lease's own slot.
func EpochKey(lease string) string { return "{" + lease + "}:epoch" }

var errArguments = errors.New("history: arguments not understood")

var effects = map[string]func(k *Keyspace, key string, args []string) error{
	"DEL":    (*Keyspace).del,
	"UNLINK": (*Keyspace).del,
	"SET":    (*Keyspace).set,
	"PEXPIREAT": func(k *Keyspace, key string, args []string) error {
		if _, there := k.Strings[key]; there && len(args) > 0 {
			return k.expire(key, args[0])
		}
		return nil
	},
	"PERSIST": func(k *Keyspace, key string, _ []string) error {
		delete(k.Expiry, key)
		return nil
	},
	"HSET":  (*Keyspace).hset,
	"HMSET": (*Keyspace).hset,
	"HDEL": func(k *Keyspace, key string, fields []string) error {
		hash := k.Hashes[key]
		for _, f := range fields {
			delete(hash, f)
		}
		if len(k.Hashes[key]) == 0 {
			delete(k.Hashes, key)
		}
		return nil
	},
	"HINCRBY": func(k *Keyspace, key string, args []string) error {
		if len(args) != 2 {
			return errArguments
		}
		by, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %w", errArguments, err)
		}
		was, _ := strconv.ParseInt(k.Hashes[key][args[0]], 10, 64) // absent: 0
		return k.hset(key, []string{args[0], strconv.FormatInt(was+by, 10)})
	},
	"SADD": func(k *Keyspace, key string, members []string) error {
		set := k.Sets[key]
		if set == nil {
			set = make(map[string]struct{})
			k.Sets[key] = set
		}
		for _, m := range members {
			set[m] = struct{}{}
		}
		return nil
	},
	"SREM": func(k *Keyspace, key string, members []string) error {
		set := k.Sets[key]
		for _, m := range members {
			delete(set, m)
		}
		if len(k.Sets[key]) == 0 {
			delete(k.Sets, key)
		}
		return nil
	},
	"XADD": func(k *Keyspace, key string, args []string) error {
		id, _ := StreamEntry(append(Command{"XADD", key}, args...))
		k.Streams[key] = id
		return nil
	},
	"XSETID": func(k *Keyspace, key string, args []string) error {
		k.Streams[key] = args[0]
		return nil
	},
	"XTRIM": func(*Keyspace, string, []string) error { return nil },
}

func (k *Keyspace) del(key string, more []string) error {
	for _, key := range append([]string{key}, more...) {
		delete(k.Strings, key)
		delete(k.Hashes, key)
		delete(k.Sets, key)
		delete(k.Streams, key)
		delete(k.Expiry, key)
	}
	return nil
}

func (k *Keyspace) set(key string, args []string) error {
	if len(args) == 0 {
		return errArguments
	}
	if err := k.del(key, nil); err != nil {
		return err
	}
	k.Strings[key] = args[0]
	for i := 1; i < len(args); i++ {
		switch opt := strings.ToUpper(args[i]); {
		case opt == "NX", opt == "XX", opt == "GET": // recorded, so it was done
		case opt == "PXAT" && i+1 < len(args):
			if err := k.expire(key, args[i+1]); err != nil {
				return err
			}
			i++
		default:
			return fmt.Errorf("%w: SET %q", errArguments, args)
		}
	}
	return nil
}

func (k *Keyspace) expire(key, ms string) error {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %w", errArguments, err)
	}
	k.Expiry[key] = time.UnixMilli(n)
	return nil
}

func (k *Keyspace) hset(key string, pairs []string) error {
	if len(pairs)%2 == 1 {
		return errArguments
	}
	hash := k.Hashes[key]
	if hash == nil {
		hash = make(map[string]string)
		k.Hashes[key] = hash
	}
	for i := 0; i < len(pairs); i += 2 {
		hash[pairs[i]] = pairs[i+1]
	}
	return nil
}
