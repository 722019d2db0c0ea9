package commands

import (
	"strings"

	"github.com/rollcall-redis/rollcall/registry"
)

// group is the consumer group of every stream of commands, consumer its only member: an instance
// that comes back under its id finds its pending entries under the same name.
const (
	group    = "rollcall"
	consumer = "instance"
)

// responsesMost caps the stream of outcomes, approximately: 21 MB of usual answers (100 bytes), 170
// MB of the longest (1,280 bytes), measured on Redis 7.0.
const responsesMost = 100_000

func outboundPrefix(l registry.Layout) string { return l.Prefix + "commands:outbound:" }

// Outbound is the stream of commands for devices that an instance holds.
func Outbound(l registry.Layout, instance string) string { return outboundPrefix(l) + instance }

// Responses is the stream of outcomes.
func Responses(l registry.Layout) string { return l.Prefix + "commands:responses" }

// state is the string that says whether a command was sent, and then what its outcome was.
func state(l registry.Layout, id string) string { return l.Prefix + "commands:state:" + id }

// literal escapes what would mean something in a pattern of SCAN.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
