package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/needs"
)

// commandsOf returns whole commands, with arguments that a server takes for valid.
func commandsOf(list []needs.Need) (all [][]string) {
	const one, field, member = "1", "f", "m"
	arguments := map[string][]string{
		"eval": {"return 1", one, "KEY"}, "eval_ro": {"return 1", one, "KEY"}, "evalsha": {"x", one, "KEY"},
		"evalsha_ro": {"x", one, "KEY"}, "xinfo": {"stream", "KEY"}, "memory": {"usage", "KEY"},
		"xgroup":     {"create", "KEY", "g", "0", "MKSTREAM"},
		"xreadgroup": {"GROUP", "g", "c", "STREAMS", "KEY", ">"},
		"set":        {"KEY", "v", "PX", one}, "getrange": {"KEY", "0", one}, "pexpire": {"KEY", one},
		"rename": {"KEY", "KEY"},
		"hset":   {"KEY", field, "v"}, "hget": {"KEY", field}, "hmget": {"KEY", field}, "hdel": {"KEY", field},
		"hincrby": {"KEY", field, one}, "hscan": {"KEY", "0"}, "sscan": {"KEY", "0"},
		"sadd": {"KEY", member}, "srem": {"KEY", member}, "smismember": {"KEY", member}, "publish": {"KEY", "x"},
		"xadd": {"KEY", "*", field, "v"}, "xrange": {"KEY", "-", "+"}, "xrevrange": {"KEY", "+", "-"},
		"xtrim": {"KEY", "MAXLEN", one}, "xack": {"KEY", "g", "1-1"}, "xdel": {"KEY", "1-1"},
		"xpending": {"KEY", "g"}, "xclaim": {"KEY", "g", "c", one, "1-1"},
	}
	for _, n := range list {
		for name := range strings.FieldsSeq(n.Commands) {
			name, _, _ = strings.Cut(name, "|")
			command := []string{name}
			for _, a := range arguments[name] {
				command = append(command, strings.Replace(a, "KEY", n.On, 1))
			}
			if arguments[name] == nil && n.On != "" {
				command = append(command, n.On)
			}
			all = append(all, command)
		}
	}
	return all
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
	commands := commandsOf(needs.Programs(parts[0].keys, keyless.Tag(at), programs...))
	for _, command := range commands {
		ok, err := may(ctx, command)
		switch {
		case err != nil && (strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "Invalid command")):
			// renamed: the finding commands
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
