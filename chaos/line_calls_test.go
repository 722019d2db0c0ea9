package chaos

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rollcall-redis/rollcall/registry"
)

// The calls of a replica, as matchers for rules. What has keys of its own is known by them; owner scripts, which all
// have the same keys, by their text.

var keyNames registry.Layout

// script splits a call of a script into its keys and arguments, as far as the request goes.
func (r request) script() (keys, args []string) {
	if len(r) < 3 || r[0] != "EVALSHA" && r[0] != "EVAL" {
		return nil, nil
	}
	n, err := strconv.Atoi(r[2])
	if err != nil || n < 0 || 3+n > len(r) {
		return nil, nil
	}
	return r[3 : 3+n], r[3+n:]
}

// on: it is a script that begins with these keys.
func (r request) on(keys ...string) bool {
	got, _ := r.script()
	return len(got) >= len(keys) && slices.Equal(got[:len(keys)], keys)
}

var batchID = regexp.MustCompile(`^\d+-[1-9]\d*$`)

// isBatch: a guarded delete.
func isBatch(r request) bool { return batchesOf(keyNames)(r) }

// batchesOf is isBatch for a fleet whose keys are named otherwise.
func batchesOf(l registry.Layout) func(request) bool {
	return func(r request) bool {
		_, args := r.script()
		return r.on(l.Audit(), l.Lease(), l.Witness()) && len(args) > 6 && batchID.MatchString(args[0]) && args[6] != "commands"
	}
}

// isOpen: the beginning of a term in the audit.
func isOpen(r request) bool {
	keys, _ := r.script()
	return len(keys) == 2 && r.on(keyNames.Audit(), keyNames.Lease())
}

// isTick: the witness listens.
func isTick(r request) bool { return ticksOf(keyNames)(r) }

// ticksOf is isTick for a fleet whose keys are named otherwise.
func ticksOf(l registry.Layout) func(request) bool {
	return func(r request) bool { return r.on(l.Witness()) }
}

func isBoot(r request) bool     { return named(r) == "boot" }
func isBeat(r request) bool     { return named(r) == "beat" || named(r) == "extend" }
func isRegister(r request) bool { return named(r) == "register" }
func isRelease(r request) bool  { return named(r) == "release" }
func isHeal(r request) bool     { return named(r) == "heal" }
func isGoodbye(r request) bool  { return named(r) == "goodbye" }

// isAcquire: redsync asks for the lease.
func isAcquire(r request) bool {
	return len(r) > 3 && r[0] == "SET" && r[1] == keyNames.Lease() && r[3:].has("NX")
}

// isRenewal: redsync extends the lease.
func isRenewal(r request) bool { return r.on(keyNames.Lease()) && named(r) == "redsync: extend" }

// isResignation: redsync gives the lease back.
func isResignation(r request) bool { return r.on(keyNames.Lease()) && named(r) == "redsync: release" }

// isLeaseCall: any of redsync's on the lease.
func isLeaseCall(r request) bool { return isAcquire(r) || isRenewal(r) || isResignation(r) }

// isServed: anything that a server refuses while it cannot serve, which is all but what belongs to a connection.
func isServed(r request) bool {
	return !slices.Contains([]string{"HELLO", "AUTH", "CLIENT", "SELECT", "PING", "QUIT", "RESET"}, r[0])
}

// known are scripts by their SHA1: redsync's, what the registry has today, and what was seen sent in full (a replica that
// was built from other texts).
var known = struct {
	sync.Mutex
	names map[string]string
}{}

var scriptHead = regexp.MustCompile(`(?m)^-- (\w+)\.lua:`)

// named is the script that is called, by the name of the last file in its text; "" if it is not known.
func named(r request) string {
	if len(r) < 2 || r[0] != "EVALSHA" && r[0] != "EVAL" {
		return ""
	}
	known.Lock()
	defer known.Unlock()
	if known.names == nil {
		known.names = map[string]string{
			"e950836ed1e694540c503ef9972b8de518044d3b": "redsync: release",
			"d75bb8b5bd13532ddedd17762e772346e39b321e": "redsync: extend",
		}
		read := func(name string) string {
			text, err := os.ReadFile("../registry/" + name + ".lua")
			if err != nil {
				panic(err)
			}
			return string(text)
		}
		known.names[shaOf(read("boot"))] = "boot"
		for _, name := range []string{"beat", "extend", "register", "heal", "release", "goodbye"} {
			known.names[shaOf(read("owner")+read(name))] = name
		}
	}
	if r[0] == "EVALSHA" {
		return known.names[strings.ToLower(r[1])]
	}
	sha := shaOf(r[1])
	if heads := scriptHead.FindAllStringSubmatch(r[1], -1); known.names[sha] == "" && heads != nil {
		known.names[sha] = heads[len(heads)-1][1]
	}
	return known.names[sha]
}

func shaOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// learn notes the text of a script that is sent in full.
func learn(r request) {
	if len(r) > 0 && r[0] == "EVAL" {
		_ = named(r)
	}
}
