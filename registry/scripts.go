package registry

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry/internal/sweeps"
)

//go:embed *.lua
var files embed.FS

func lua(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	bootScript     = redis.NewScript(guard.SettingsLua + lua("boot"))
	beatScript     = redis.NewScript(guard.SettingsLua + lua("owner") + lua("beat"))
	extendScript   = redis.NewScript(lua("owner") + lua("extend"))
	registerScript = redis.NewScript(lua("owner") + lua("register"))
	healScript     = redis.NewScript(guard.ListenLua + lua("owner") + lua("heal"))
	releaseScript  = redis.NewScript(lua("owner") + lua("release"))
	goodbyeScript  = redis.NewScript(lua("owner") + lua("goodbye"))
	lookupScript   = redis.NewScript(lua("lookup"))
	sameScript     = redis.NewScript(lua("same"))
)

// EvictEntries is the body of a guarded batch that evicts entries: Items are ids, Owner is the
// dead instance, and Keys are those of EntryKeys; without the second one the index is left alone.
// So is an unusable index; Answer.Reason then has the error.
var EvictEntries = sweeps.EvictEntries

// EntryKeys returns the Keys of a batch whose Body is EvictEntries.
func EntryKeys(l Layout, owner string) []string { return sweeps.EntryKeys(l, owner) }

// ErrSuperseded ends Run when a newer process has the same instance id. This one writes nothing
// more and hands nothing back; it must close its sockets and exit.
var ErrSuperseded = errors.New("registry: superseded by a newer process with the same instance id")

// A reply is the answer of every owner script: the signs that Redis lost something.
type reply struct {
	absent  bool   // the heartbeat was not this life's
	size    int    // members of the index; -1: not a set
	lost    string // when Redis may last have lost entries; "": unknown
	gone    bool   // the registry is missing
	count   int    // the script's own; see its header
	foreign map[string]string
}

func (r *Registry) own(
	ctx context.Context, c redis.Scripter, s *redis.Script, more ...any,
) (reply, error) {
	keys, args := r.owning(more...)
	return r.owned(s.Run(ctx, c, keys, args...))
}

func (r *Registry) owning(more ...any) (keys []string, args []any) {
	k := r.keys
	keys = []string{k.Heartbeat(r.id), k.Roster(), k.Devices(r.id), k.Witness(), k.Registry()}
	r.mu.Lock()
	defer r.mu.Unlock()
	args = []any{r.id, r.boot, r.cfg.HeartbeatTTL.Milliseconds(), !r.cfg.NoReverseIndex}
	return keys, append(args, more...)
}

func (r *Registry) owned(cmd *redis.Cmd) (reply, error) {
	out, err := cmd.Slice()
	if err != nil {
		r.noteFailed(err)
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
			var foreign map[string]string
			if len(flat) > 0 {
				foreign = make(map[string]string, len(flat)/2)
			}
			for pair := range slices.Chunk(flat, 2) {
				foreign[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
			}
			return reply{absent == 1, int(size), lost, gone == 1, int(count), foreign}, nil
		}
	}
	return reply{}, fmt.Errorf("registry: unexpected answer %v", out)
}
