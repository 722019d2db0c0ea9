package registry

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// live adds which of these instances have a heartbeat.
func (r *Registry) live(ctx context.Context, instances []string, live map[string]bool) error {
	pipe := r.cfg.Client.Pipeline()
	exists := make([]*redis.IntCmd, len(instances))
	for i, instance := range instances {
		exists[i] = pipe.Exists(ctx, r.keys.Heartbeat(instance))
	}
	if err := together.Exec(ctx, pipe); err != nil {
		return err
	}
	for i, instance := range instances {
		if err := exists[i].Err(); err != nil {
			return err
		}
		live[instance] = exists[i].Val() == 1
	}
	return nil
}

// Owners returns every instance that has registered and is not swept yet, sorted. Plain writers,
// which write no roster, are missing.
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
	live := make(map[string]bool, len(instances))
	for some := range slices.Chunk(instances, batchSize) {
		if err := r.live(ctx, some, live); err != nil {
			return nil, fmt.Errorf("registry: list owners: %w", err)
		}
	}
	owners := make([]Owner, len(instances))
	for i, instance := range instances {
		owners[i] = Owner{Instance: instance, Live: live[instance]}
	}
	return owners, nil
}

// Holdings yields the ids whose entries name an instance, about 500 a call. It reads the instance's
// reverse index, and so nothing of an owner that keeps none (NoReverseIndex, a plain writer). An id
// that is registered or released meanwhile may be missing, or yielded twice. An error ends it.
func (r *Registry) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for cursor := uint64(0); ; {
			page, next, err := r.cfg.Client.SScan(ctx, r.keys.Devices(instance), cursor, "", batchSize).Result()
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
