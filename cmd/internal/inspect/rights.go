package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// rights are those of the user that asks, and of what the programs that live need beside.
func rights(ctx context.Context, p *patient) ([]Finding, error) {
	all := map[string]bool{}
	for _, in := range p.s.Instances {
		if in.Alive {
			all[in.Program] = true
		}
	}
	user, lacks, err := p.fleet.Rights(ctx, slices.Collect(maps.Keys(all))...)
	if err != nil {
		return []Finding{{Level: Warning, quiet: true, Sentence: "The rights could not be checked: " + err.Error() + "."}}, nil
	}
	if len(lacks) == 0 {
		return fine("%s has all rights of a replica", user)
	}
	return lacks, nil
}

// Rights returns a finding for each right of a replica of these programs that this user lacks.
func (r *Reader) Rights(ctx context.Context, programs ...string) (user string, lacks []Finding, err error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return "", nil, err
	}
	at, err := r.at(ctx) // of a Redis Cluster any node would be asked, also one that hangs
	if err != nil {
		return "", nil, err
	}
	asks := &Reader{client: at, keys: r.keys}
	user = or(r.user(), "default")
	may := asks.tried // a refused ACL counts as a refusal, and silence is doubted while Redis refuses
	if _, err := may(ctx, []string{"ping"}); err != nil {
		may = asks.dryRun(user)
	}
	commands := neededRights(parts[0].keys, keyless.Tag(at))
	for _, name := range programs {
		if of := rightsOf[name]; of != nil {
			commands = append(commands, of(parts[0].keys)...)
		}
	}
	for _, command := range commands {
		ok, err := may(ctx, command)
		switch {
		case err != nil && strings.Contains(err.Error(), "not found"): // renamed: the finding commands
		case err != nil && len(lacks) == 0:
			return user, nil, fmt.Errorf("neither ACL DRYRUN nor a script may ask (%w)", err)
		case err != nil:
			return user, lacks, nil
		case !ok:
			lacks = append(lacks, missing(user, command))
		}
	}
	return user, lacks, nil
}

// rightsOf are what a program needs beside those of every replica.
var rightsOf = map[string]func(keys guard.Layout) [][]string{
	"ingest": func(keys guard.Layout) [][]string {
		records, queue := "telemetry:teltonika", keys.Prefix+"commands:outbound:x"
		return [][]string{
			{"xadd", records, "*", "f", "v"}, {"xadd", records + ":dead", "*", "f", "v"},
			{"xadd", records + ":messages", "*", "f", "v"}, {"hset", records + ":faults", "f", "v"},
			{"xgroup", "create", queue, "g", "0", "MKSTREAM"}, {"xreadgroup", "GROUP", "g", "c", "STREAMS", queue, ">"},
			{"xadd", queue, "*", "f", "v"}, {"xack", queue, "g", "1-1"}, {"xdel", queue, "1-1"},
			{"xpending", queue, "g"}, {"xclaim", queue, "g", "c", "1", "1-1"}, {"xrange", queue, "-", "+"},
			{"xadd", keys.Prefix + "commands:responses", "*", "f", "v"}, {"set", keys.Prefix + "commands:state:x", "v"},
		}
	},
}

func missing(user string, command []string) Finding {
	name, what := command[0], ""
	switch name {
	case "memory", "xinfo", "xgroup":
		name, what = name+"|"+command[1], command[2]
	case "xreadgroup":
		what = command[5]
	case "eval", "evalsha", "eval_ro", "evalsha_ro":
		what = command[3]
	case "info":
	default:
		if len(command) > 1 {
			what = command[1]
		}
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
	on := ""
	if what != "" {
		on = " on " + what
	}
	return Finding{
		Name: name, Level: level, Do: fmt.Sprintf("ACL SETUSER %s +%s%s", user, name, pattern(name, what)),
		Sentence: fmt.Sprintf("%s may not %s%s%s.", user, strings.ToUpper(strings.ReplaceAll(name, "|", " ")), on, why),
	}
}

func pattern(command, key string) string {
	if key == "" {
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
