package registry

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// LookupMany returns the owners of many ids. An id that nobody holds is missing from the map. It
// reads the entries, a call for each 1,000, and then the heartbeats of the instances that they
// name. So unlike Lookup, it may report an owner that died, or lost the id, between the two.
// Errors are Redis' and are counted.
func (r *Registry) LookupMany(ctx context.Context, ids []string) (map[string]Owner, error) {
	owners, err := r.lookupMany(ctx, ids)
	if err != nil {
		r.metrics.failures.WithLabelValues("lookup").Inc()
		return nil, fmt.Errorf("registry: look up %d ids: %w", len(ids), err)
	}
	return owners, nil
}

func (r *Registry) lookupMany(ctx context.Context, ids []string) (map[string]Owner, error) {
	owners := make(map[string]Owner, len(ids))
	named := make(map[string]bool)
	for some := range slices.Chunk(ids, scanCount) {
		found, err := r.cfg.Client.HMGet(ctx, r.keys.Registry(), some...).Result()
		if err != nil {
			return nil, err
		}
		for i, id := range some {
			if owner, ok := found[i].(string); ok {
				owners[id] = Owner{Instance: owner}
				named[owner] = true
			}
		}
	}
	live, err := r.live(ctx, slices.Collect(maps.Keys(named)))
	for id, owner := range owners {
		owner.Live = live[owner.Instance]
		owners[id] = owner
	}
	return owners, err
}

// live reports which instances have a heartbeat.
func (r *Registry) live(ctx context.Context, instances []string) (map[string]bool, error) {
	live := make(map[string]bool, len(instances))
	for some := range slices.Chunk(instances, batchSize) {
		exists := make([]*redis.IntCmd, len(some))
		pipe := r.cfg.Client.Pipeline()
		for i, instance := range some {
			exists[i] = pipe.Exists(ctx, r.keys.Heartbeat(instance))
		}
		if err := together.Exec(ctx, pipe); err != nil {
			return nil, err
		}
		for i, instance := range some {
			if err := exists[i].Err(); err != nil {
				return nil, err
			}
			live[instance] = exists[i].Val() == 1
		}
	}
	return live, nil
}

// Owners returns every instance that has registered and is not swept yet, sorted, and whether it is
// alive. Plain writers, which write entries without a roster, are missing.
func (r *Registry) Owners(ctx context.Context) ([]Owner, error) {
	var instances []string
	for cursor := uint64(0); ; {
		page, next, err := r.cfg.Client.SScan(ctx, r.keys.Roster(), cursor, "", scanCount).Result()
		if err != nil {
			return nil, fmt.Errorf("registry: list owners: %w", err)
		}
		instances = append(instances, page...)
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.Sort(instances)
	instances = slices.Compact(instances) // SSCAN may return a member twice
	live, err := r.live(ctx, instances)
	if err != nil {
		return nil, fmt.Errorf("registry: list owners: %w", err)
	}
	owners := make([]Owner, len(instances))
	for i, instance := range instances {
		owners[i] = Owner{Instance: instance, Live: live[instance]}
	}
	return owners, nil
}

// Holdings yields the ids whose entries name an instance, page by page: each call of Redis reads up
// to 1,000. It reads the instance's reverse index, and so nothing of an owner that keeps none
// (NoReverseIndex, a plain writer). An id that is registered or released meanwhile may be missing,
// or yielded twice. An error ends it.
func (r *Registry) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for cursor := uint64(0); ; {
			page, next, err := r.cfg.Client.SScan(ctx, r.keys.Devices(instance), cursor, "", scanCount).Result()
			var found []any
			if err == nil && len(page) > 0 {
				found, err = r.cfg.Client.HMGet(ctx, r.keys.Registry(), page...).Result()
			}
			if err != nil {
				yield("", fmt.Errorf("registry: list what %s holds: %w", instance, err))
				return
			}
			for i, id := range page {
				if found[i] == instance && !yield(id, nil) {
					return
				}
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}
