package rollcall

import (
	"strings"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
)

// ACL returns the rights that a replica with its janitor needs of Redis: the rules of
// `ACL SETUSER name on >password ...` for a fleet with this prefix in this database. A fleet that
// has more than one partition needs every key and channel of the prefix's hash tag instead.
func ACL(prefix string, db int) []string {
	keys := guard.Layout{Prefix: prefix}
	term, tag := keys.Term(), keyless.TagOf(db)
	aside := func(name string) string { return name + ":aside:*" } // for a key of another type in its place
	rules := []string{"&" + tag + keys.Heartbeat("*"), "&" + tag + term + ":released"}
	for _, key := range []string{
		keys.Registry(), keys.Heartbeat("*"), keys.Devices("*"), keys.Roster(), keys.Beats(), aside(keys.Beats()),
		keys.Lease(), term + ":epoch", aside(term), keys.Contenders(), keys.Witness(), aside(keys.Witness()), keys.Never(),
		keys.Paused(), keys.Log(), aside(keys.Log()), keys.Timeline(), keys.Partitions(),
	} {
		rules = append(rules, "~"+key)
	}
	for command := range strings.FieldsSeq(commands) {
		rules = append(rules, "+"+command)
	}
	return rules
}

// commands without those that a Redis Cluster's client runs beside them.
const commands = `hello ping select info time eval evalsha eval_ro evalsha_ro multi exec publish subscribe unsubscribe
	type exists del unlink rename pttl pexpire get getrange set
	hget hmget hset hdel hincrby hgetall hlen hscan sadd srem scard smembers sscan
	xadd xrange xrevrange xlen xtrim xinfo|stream memory|usage`
