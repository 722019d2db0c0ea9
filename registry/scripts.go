package registry

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
)

//go:embed owner.lua boot.lua beat.lua extend.lua register.lua heal.lua release.lua goodbye.lua
//go:embed lookup.lua same.lua
var scripts embed.FS

func lua(name string) string {
	text, err := scripts.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // cannot be: it is embedded
	}
	return string(text)
}

var (
	bootScript     = redis.NewScript(guard.SettingsLua + lua("boot"))
	beatScript     = redis.NewScript(guard.SettingsLua + lua("owner") + lua("beat"))
	extendScript   = redis.NewScript(lua("owner") + lua("extend"))
	registerScript = redis.NewScript(lua("owner") + lua("register"))
	healScript     = redis.NewScript(lua("owner") + lua("heal"))
	releaseScript  = redis.NewScript(lua("owner") + lua("release"))
	goodbyeScript  = redis.NewScript(lua("owner") + lua("goodbye"))
	lookupScript   = redis.NewScript(lua("lookup"))
	sameScript     = redis.NewScript(lua("same"))
)

// ErrSuperseded ends Run when a newer process with the same instance id has begun. This one writes
// nothing more and hands nothing back; it must close its sockets and exit.
var ErrSuperseded = errors.New("registry: superseded by a newer process with the same instance id")

// A reply is what every owner script answers: what an owner must know to see that Redis lost
// something.
type reply struct {
	absent  bool   // the heartbeat was not this life's
	size    int    // members of the index; -1: not a set
	lost    string // when a hold last said that Redis may have lost entries; "": not known
	gone    bool   // there is no registry at all
	count   int    // the script's own: see its header
	foreign map[string]string
}

// own runs one owner script. ErrSuperseded is among its errors.
func (r *Registry) own(
	ctx context.Context, c redis.Scripter, s *redis.Script, more ...string,
) (reply, error) {
	k := r.keys
	keys := []string{k.Heartbeat(r.id), k.Roster(), k.Devices(r.id), k.Witness(), k.Registry()}
	index := "1"
	if r.cfg.NoReverseIndex {
		index = "0"
	}
	args := make([]any, 0, 4+len(more))
	args = append(args, r.id, r.bootToken(), millis(r.cfg.HeartbeatTTL), index)
	for _, a := range more {
		args = append(args, a)
	}
	out, err := s.Run(ctx, c, keys, args...).Slice()
	if err != nil {
		return reply{}, err
	}
	if len(out) == 1 && out[0] == "SUPERSEDED" {
		return reply{}, ErrSuperseded
	}
	return parseReply(out)
}

func parseReply(out []any) (reply, error) {
	if len(out) == 7 {
		absent, ok1 := out[1].(int64)
		size, ok2 := out[2].(int64)
		lost, ok3 := out[3].(string)
		gone, ok4 := out[4].(int64)
		count, ok5 := out[5].(int64)
		flat, ok6 := out[6].([]any)
		if ok1 && ok2 && ok3 && ok4 && ok5 && ok6 {
			s := reply{absent: absent == 1, size: int(size), lost: lost, gone: gone == 1, count: int(count)}
			if len(flat) > 0 {
				s.foreign = make(map[string]string, len(flat)/2)
			}
			for i := 0; i+1 < len(flat); i += 2 {
				s.foreign[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
			}
			return s, nil
		}
	}
	return reply{}, fmt.Errorf("registry: unexpected answer %v", out)
}

// outOfMemory tells the refusal of a write for want of memory.
func outOfMemory(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "OOM ")
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
