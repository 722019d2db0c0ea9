// Package needs lists what a replica with its janitor asks of Redis.
package needs

import (
	"slices"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// A Need is keys or a channel, and the commands that a replica runs on them. On is "" for commands
// without keys.
type Need struct{ On, Commands string }

// Replica returns the needs of every replica. some stands for what differs: an instance, an epoch.
// tag begins the names of channels, see keyless.Tag.
func Replica(keys guard.Layout, tag, some string) []Need {
	lease, term, log := keys.Lease(), keys.Term(), keys.Log()
	aside := func(name string) string { return name + ":aside:" + some } // where an unusable key is moved to
	hash := "hget hset hdel hscan hlen"
	all := []Need{
		{"", "ping time info multi exec"},
		{lease, "eval evalsha get set del pttl pexpire getrange rename"}, {aside(term), "rename"},
		{term + ":epoch", "get set getrange"},
		{keys.Registry(), "eval_ro evalsha_ro hmget exists type " + hash},
		{keys.Heartbeat(some), "set get exists pexpire pttl del"},
		{keys.Devices(some), "sadd srem sscan scard unlink"}, {keys.Roster(), "smembers sadd srem scard"},
		{keys.Beats(), "hgetall " + hash}, {aside(keys.Beats()), "rename"},
		{keys.Witness(), "hset hget hmget hincrby hdel"}, {aside(keys.Witness()), "rename"},
		{keys.Never(), "eval"}, {keys.Contenders(), "sadd srem sscan"}, {keys.Paused(), "get getrange set del"},
		{log, "xadd xrange xrevrange xlen xtrim type xinfo|stream memory|usage rename"}, {aside(log), "rename"},
		{keys.Timeline(), "xadd xrange xrevrange"},
		{tag + term + ":released", "publish subscribe unsubscribe"},
		{tag + keys.Heartbeat(some), "publish subscribe unsubscribe"},
	}
	if keys.OneSlot() {
		all = append(all, Need{keys.Partitions(), "set"})
	}
	return all
}

// Programs returns the needs of the project's own programs.
func Programs(keys guard.Layout, tag string, names ...string) []Need {
	const some, records = "x", "telemetry:teltonika"
	all := append(Replica(keys, tag, some), Need{keys.About(some), "get getrange set"})
	if commands := keys.Prefix + "commands:"; slices.Contains(names, "ingest") {
		all = append(all,
			Need{records, "xadd"}, Need{records + ":dead", "xadd"}, Need{records + ":messages", "xadd"},
			Need{records + ":faults", "hset"},
			Need{commands + "outbound:" + some, "xgroup xreadgroup xadd xack xdel xpending xclaim xrange"},
			Need{commands + "responses", "xadd"}, Need{commands + "state:" + some, "set"},
		)
	}
	return all
}
