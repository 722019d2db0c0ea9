package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// Damaged is a key of the wrong type: somebody overwrote it, or uses the same name.
type Damaged struct {
	Key  string `json:"key"`
	Is   string `json:"is"`
	Must string `json:"must_be"`

	level   Level
	follows string
}

func (r *Reader) types() []Damaged {
	k := r.keys
	return []Damaged{
		{k.Registry(), "", "hash", Wrong, "no device can be registered or found, and nothing is swept"},
		{k.Lease(), "", "string", Wrong, "nobody leads until contenders have set it aside, after one lease TTL"},
		{k.Log(), "", "stream", Wrong, "nothing is swept until the next term sets it aside"},
		{k.Roster(), "", "set", Warning, "the dead are found by the full scan alone"},
		{k.Witness(), "", "hash", Warning, "the next tick sets it aside, and deletes wait for GRACE"},
		{k.Contenders(), "", "set", Warning, "replicas do not see who else contends"},
		{k.Timeline(), "", "stream", Warning, "nobody can see what happened"},
		{k.Paused(), "", "string", Warning, "it still pauses sweeping"},
	}
}

func (r *Reader) damaged(ctx context.Context, fleet bool) (found []Damaged, err error) {
	types := r.types()
	if !fleet {
		types = slices.DeleteFunc(types, func(t Damaged) bool { return !strings.HasPrefix(t.Key, r.keys.Prefix) })
	}
	p := r.client.Pipeline()
	kinds := make([]*redis.StatusCmd, len(types))
	for i, t := range types {
		kinds[i] = p.Type(ctx, t.Key)
	}
	none := together.Exec(ctx, p)
	for i := range types {
		if err := cmp.Or(none, kinds[i].Err()); err != nil && !Refused(err) {
			return nil, fmt.Errorf("inspect: types of the keys: %w", err)
		}
	}
	for i, t := range types {
		if t.Is = kinds[i].Val(); t.Is != "" && t.Is != "none" && t.Is != t.Must {
			found = append(found, t)
		}
	}
	return found, nil
}
