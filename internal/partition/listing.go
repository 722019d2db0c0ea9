package partition

import (
	"context"
	"iter"
	"maps"
	"slices"

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
	var owners []registry.Owner
	for _, instance := range slices.Sorted(maps.Keys(live)) {
		owners = append(owners, registry.Owner{Instance: instance, Live: live[instance]})
	}
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
