package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/needs"
)

// examples are arguments that a server takes for valid; of other commands the key alone.
const examples = `
eval x 1 KEY
eval_ro x 1 KEY
evalsha x 1 KEY
evalsha_ro x 1 KEY
getrange KEY 0 1
hdel KEY f
hget KEY f
hincrby KEY f 1
hmget KEY f
hscan KEY 0
hset KEY f v
memory usage KEY
pexpire KEY 1
publish KEY x
rename KEY KEY
sadd KEY m
set KEY v PX 1
smismember KEY m
srem KEY m
sscan KEY 0
xack KEY g 1-1
xadd KEY * f v
xclaim KEY g c 1 1-1
xdel KEY 1-1
xgroup create KEY g 0 MKSTREAM
xinfo stream KEY
xpending KEY g
xrange KEY - +
xreadgroup GROUP g c STREAMS KEY >
xrevrange KEY + -
xtrim KEY MAXLEN 1`

// right is a command on a key or channel; "": without one.
type right struct {
	name, on string
	command  []any
}

func rightsOf(list []needs.Need) (all []right) {
	arguments := map[string][]string{}
	for line := range strings.Lines(examples) {
		if words := strings.Fields(line); len(words) > 0 {
			arguments[words[0]] = words[1:]
		}
	}
	for _, n := range list {
		for name := range strings.FieldsSeq(n.Commands) {
			name, _, _ = strings.Cut(name, "|")
			args := arguments[name]
			if args == nil && n.On != "" {
				args = []string{"KEY"}
			}
			r := right{name, n.On, []any{name}}
			if slices.Contains([]string{"memory", "xinfo", "xgroup"}, name) {
				r.name += "|" + args[0]
			}
			for _, a := range args {
				r.command = append(r.command, strings.Replace(a, "KEY", n.On, 1))
			}
			all = append(all, r)
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
func rights(p *patient) []Finding {
	var programs []string
	for _, in := range p.s.Instances {
		if in.Alive {
			programs = append(programs, in.Program)
		}
	}
	user, lacks, err := p.fleet.Rights(p.ctx, programs...)
	if err != nil {
		return quietly(warning("", "The rights could not be checked: %v", err))
	}
	if len(lacks) == 0 {
		return fine("%s has all rights of a replica", user)
	}
	return lacks
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
	user = or(r.user(), "default")
	// A refused ACL counts as a refusal, and silence is doubted while Redis refuses.
	may := func(command ...any) (bool, error) {
		said, err := at.EvalRO(ctx, mayScript, nil, command...).Int()
		if err == nil && said < 0 {
			err = errNoUsers
		}
		return said == 1, err
	}
	if _, err := may("ping"); err != nil {
		may = func(command ...any) (bool, error) {
			said, err := at.Do(ctx, append([]any{"ACL", "DRYRUN", user}, command...)...).Text()
			return said == "OK", err
		}
	}
	for _, right := range rightsOf(needs.Programs(parts[0].keys, keyless.Tag(at), programs...)) {
		ok, err := may(right.command...)
		switch {
		case err != nil && (strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "Invalid command")):
			// renamed: the finding commands
		case err != nil && len(lacks) == 0:
			return user, nil, fmt.Errorf("neither ACL DRYRUN nor a script may ask (%w)", err)
		case err != nil:
			return user, lacks, nil
		case !ok:
			lacks = append(lacks, right.missing(user))
		}
	}
	return user, lacks, nil
}

var errNoUsers = errors.New("this server does not report its users' rights")

func (r right) missing(user string) Finding {
	level, why := Wrong, ""
	switch r.name {
	case "memory|usage", "xtrim", "xlen":
		level, why = Warning, ": the eviction log is trimmed by number, or grows"
	case "rename":
		level, why = Warning, ": a log that takes no more records must be deleted by hand"
	case "publish", "subscribe":
		level, why = Warning, ": others notice later"
	case "info":
		level, why = Warning, ": restarts and evicted keys go unnoticed"
	}
	if strings.HasSuffix(r.on, ":about:x") || strings.HasSuffix(r.on, ":timeline") {
		level, why = Warning, ": the fleet's page lacks versions and addresses, or events"
	}
	on, pattern := "", ""
	if r.on != "" {
		mark, key := "~", r.on
		if r.name == "publish" || r.name == "subscribe" {
			mark = "&"
		}
		if id, ok := strings.CutSuffix(key, ":x"); ok {
			key = id + ":*"
		}
		on, pattern = " on "+r.on, " '"+mark+key+"'"
	}
	return found(level, r.name, fmt.Sprintf("ACL SETUSER %s +%s%s", user, r.name, pattern),
		"%s may not %s%s%s", user, strings.ToUpper(strings.ReplaceAll(r.name, "|", " ")), on, why)
}
