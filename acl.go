package rollcall

import (
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/needs"
)

// ACL returns the rights that a replica with its janitor needs of Redis, and no more: the rules of
// `ACL SETUSER name on >password ...` for a fleet with this prefix in this database. A fleet that
// has more than one partition needs every key and channel of the prefix's hash tag instead.
func ACL(prefix string, db int) []string {
	var on []string
	commands := []string{"+hello"} // as SELECT, of the client
	for _, need := range needs.Replica(guard.Layout{Prefix: prefix}, keyless.TagOf(db), "*") {
		mark := "~"
		if strings.HasPrefix(need.Commands, "publish") {
			mark = "&"
		}
		if need.On != "" {
			on = append(on, mark+need.On)
		}
		for command := range strings.FieldsSeq(need.Commands) {
			commands = append(commands, "+"+command)
		}
	}
	if db > 0 {
		commands = append(commands, "+select")
	}
	slices.Sort(commands)
	return append(on, slices.Compact(commands)...)
}
