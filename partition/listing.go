package partition

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/registry"
)

// LookupMany looks ids up, partition by partition.
func (r *Registry) LookupMany(ctx context.Context, ids []string) (map[string]registry.Owner, error) {
	of := make(map[*registry.Registry][]string)
	for _, id := range ids {
		of[r.of(id)] = append(of[r.of(id)], id)
	}
	owners := make(map[string]registry.Owner, len(ids))
	for part, ids := range of {
		some, err := part.LookupMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		maps.Copy(owners, some)
	}
	return owners, nil
}

// Owners reports an instance as alive if it has a heartbeat in any partition.
func (r *Registry) Owners(ctx context.Context) ([]registry.Owner, error) {
	live := make(map[string]bool)
	for _, part := range r.parts {
		owners, err := part.Owners(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			live[o.Instance] = live[o.Instance] || o.Live
		}
	}
	owners := make([]registry.Owner, 0, len(live))
	for instance, alive := range live {
		owners = append(owners, registry.Owner{Instance: instance, Live: alive})
	}
	slices.SortFunc(owners, func(a, b registry.Owner) int { return strings.Compare(a.Instance, b.Instance) })
	return owners, nil
}

// Holdings walks an instance's ids, partition by partition.
func (r *Registry) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, part := range r.parts {
			for id, err := range part.Holdings(ctx, instance) {
				if !yield(id, err) || err != nil {
					return
				}
			}
		}
	}
}
