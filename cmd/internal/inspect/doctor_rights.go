package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
)

// tag begins the names of channels, see keyless.Tag.
func neededRights(keys guard.Layout, tag string) [][]string {
	var (
		entry, beat  = keys.Registry(), keys.Heartbeat("x")
		index, log   = keys.Devices("x"), keys.Log()
		lease, epoch = keys.Lease(), keys.Lease() + ":epoch"
		roster       = keys.Roster()
		witness      = keys.Witness()
		about, past  = keys.About("x"), keys.Timeline()
	)
	if !keys.OneSlot() {
		epoch = "{" + keys.Lease() + "}:epoch"
	}
	released := strings.TrimSuffix(epoch, ":epoch") + ":released"
	return [][]string{
		{"set", keys.About("x"), "x", "PX", "1"}, {"get", keys.About("x")},
		{"xadd", keys.Timeline(), "*", "f", "v"}, {"xrange", keys.Timeline(), "-", "+"},
		{"ping"}, {"time"}, {"info", "stats"},
		{"eval", "return 1", "1", lease}, {"evalsha", "x", "1", lease}, {"eval_ro", "return 1", "1", entry},
		{"evalsha_ro", "x", "1", entry},
		{"get", lease}, {"set", lease, "x", "PX", "1", "NX"}, {"del", lease},
		{"pttl", lease}, {"pexpire", lease, "1"},
		{"get", epoch}, {"set", epoch, "1"}, {"getrange", lease, "0", "1"}, {"getrange", epoch, "0", "1"},
		{"set", beat, "x", "PX", "1"}, {"get", beat}, {"exists", beat}, {"pexpire", beat, "1"}, {"pttl", beat},
		{"del", beat},
		{"hset", entry, "f", "v"}, {"hget", entry, "f"}, {"hmget", entry, "f"}, {"hdel", entry, "f"},
		{"hscan", entry, "0"}, {"hlen", entry}, {"exists", entry}, {"type", entry},
		{"sadd", index, "m"}, {"srem", index, "m"}, {"scard", index},
		{"sscan", index, "0"}, {"smismember", index, "m"}, {"unlink", index},
		{"sadd", roster, "m"}, {"srem", roster, "m"}, {"scard", roster}, {"sscan", roster, "0"},
		{"sadd", keys.Contenders(), "m"}, {"srem", keys.Contenders(), "m"}, {"sscan", keys.Contenders(), "0"},
		{"smembers", roster}, {"hgetall", keys.Beats()}, {"hlen", keys.Beats()}, {"hscan", keys.Beats(), "0"},
		{"hget", keys.Beats(), "f"}, {"hset", keys.Beats(), "f", "v"}, {"hdel", keys.Beats(), "f"},
		{"hset", witness, "f", "v"}, {"hget", witness, "f"},
		{"hmget", witness, "f"}, {"hincrby", witness, "f", "1"}, {"hdel", witness, "f"},
		{"get", keys.Paused()}, {"set", keys.Paused(), "x"}, {"del", keys.Paused()},
		{"xadd", log, "*", "f", "v"}, {"xrange", log, "-", "+"}, {"xrevrange", log, "+", "-"}, {"xlen", log},
		{"xtrim", log, "MAXLEN", "1"}, {"xinfo", "stream", log}, {"memory", "usage", log}, {"type", log},
		{"rename", log, keys.LogAside(1)},
		{"get", about}, {"getrange", about, "0", "1"}, {"set", about, "x", "PX", "1"},
		{"xadd", past, "*", "f", "v"},
		{"xrevrange", past, "+", "-"},
		{"publish", tag + released, "x"}, {"publish", tag + beat, "x"}, {"subscribe", tag + released}, {"subscribe", tag + beat},
		{"multi"}, {"exec"},
	}
}

func (r *Reader) user() string {
	switch c := r.client.(type) {
	case *redis.Client:
		return c.Options().Username
	case *redis.ClusterClient:
		return c.Options().Username
	}
	return ""
}

// mayScript is for users who may not run ACL DRYRUN.
const mayScript = `
if not redis.acl_check_cmd then return -1 end
return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0`

func (r *Reader) rights(ctx context.Context) []Check {
	at, err := r.at(ctx) // of a Redis Cluster any node would be asked, also one that hangs
	if err != nil {
		return []Check{{"rights", Warning, "could not be checked: " + err.Error()}}
	}
	r = &Reader{client: at, keys: r.keys}
	user, err := r.client.Do(ctx, "ACL", "WHOAMI").Text()
	if err != nil {
		user = or(r.user(), "default")
	}
	may := r.dryRun(user)
	if _, err := may(ctx, []string{"ping"}); err != nil {
		may = r.tried
	}
	var checks []Check
	for _, command := range neededRights(r.keys, keyless.Tag(r.client)) {
		ok, err := may(ctx, command)
		if err != nil && len(checks) == 0 {
			return []Check{{"rights", Warning, fmt.Sprintf("could not be checked: neither ACL DRYRUN nor a script "+
				"may ask (%v)", err)}}
		}
		if err != nil {
			checks = append(checks, Check{"rights", Warning, "could not be checked: " + err.Error()})
			return checks
		}
		if !ok {
			checks = append(checks, missing(user, command))
		}
	}
	if len(checks) == 0 {
		checks = []Check{{"rights", OK, user + " has all rights of a replica"}}
	}
	return checks
}

func missing(user string, command []string) Check {
	name, what := command[0], ""
	switch {
	case name == "memory" || name == "xinfo":
		name, what = name+"|"+command[1], " on "+command[2]
	case strings.HasPrefix(name, "eval"):
		what = " on " + command[3]
	case len(command) > 1 && name != "info":
		what = " on " + command[1]
	}
	level, why := Wrong, ""
	switch name {
	case "memory|usage", "xtrim", "xlen":
		level, why = Warning, ": the eviction log is trimmed by number, or grows"
	case "rename":
		level, why = Warning, ": a log that takes no more records must be deleted by hand"
	case "publish", "subscribe":
		level, why = Warning, ": others notice later"
	case "info":
		level, why = Warning, ": restarts and evicted keys go unnoticed"
	}
	if strings.HasSuffix(what, ":about:x") || strings.HasSuffix(what, ":timeline") {
		level, why = Warning, ": the fleet's page lacks versions and addresses, or events"
	}
	return Check{
		"right:" + name, level,
		fmt.Sprintf("%s may not %s%s%s; ACL SETUSER %s +%s%s", user,
			strings.ToUpper(strings.ReplaceAll(name, "|", " ")), what, why, user, name, pattern(name, what)),
	}
}

func pattern(command, on string) string {
	key, named := strings.CutPrefix(on, " on ")
	if !named {
		return ""
	}
	mark := "~"
	if command == "publish" || command == "subscribe" {
		mark = "&"
	}
	if id, ok := strings.CutSuffix(key, ":x"); ok {
		key = id + ":*"
	}
	return " '" + mark + key + "'"
}

type may func(ctx context.Context, command []string) (bool, error)

func (r *Reader) dryRun(user string) may {
	return func(ctx context.Context, command []string) (bool, error) {
		args := []any{"ACL", "DRYRUN", user}
		for _, a := range command {
			args = append(args, a)
		}
		said, err := r.client.Do(ctx, args...).Text()
		return said == "OK", err
	}
}

func (r *Reader) tried(ctx context.Context, command []string) (bool, error) {
	args := make([]any, len(command))
	for i, a := range command {
		args[i] = a
	}
	said, err := r.client.EvalRO(ctx, mayScript, nil, args...).Int()
	if err == nil && said < 0 {
		err = errNoUsers
	}
	return said == 1, err
}

var errNoUsers = errors.New("this server does not report its users' rights")
