package registry

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// LookupMany returns the owners of many ids. An id that nobody holds is missing from the map. It
// reads the entries, 1,000 a call, and then the heartbeats of their owners: with the last entries
// if earlier look-ups have found them alive, otherwise, and on a Redis Cluster, in one more call.
// So unlike Lookup, it may report an owner that died, or lost the id, between the two.
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
	found, live := make([]any, 0, len(ids)), make(map[string]bool)
	_, cluster := r.cfg.Client.(*redis.ClusterClient) // it may redirect and so reorder a pipeline
	for some := range slices.Chunk(ids, scanCount) {
		var supposed []string
		if !cluster && len(found)+len(some) == len(ids) { // entries are read before heartbeats
			supposed = r.met.some(len(ids))
		}
		pipe := r.cfg.Client.Pipeline()
		page := pipe.HMGet(ctx, r.keys.Registry(), some...)
		if err := r.live(ctx, pipe, supposed, live); err != nil {
			return nil, err
		}
		if page.Err() != nil {
			return nil, page.Err()
		}
		found = append(found, page.Val()...)
	}
	var others []string
	for _, instance := range found {
		if instance, ok := instance.(string); ok {
			if _, asked := live[instance]; !asked {
				live[instance] = false
				others = append(others, instance)
			}
		}
	}
	for some := range slices.Chunk(others, batchSize) {
		if err := r.live(ctx, r.cfg.Client.Pipeline(), some, live); err != nil {
			return nil, err
		}
	}
	r.met.note(live)
	owners := make(map[string]Owner, len(ids))
	for i, id := range ids {
		if instance, ok := found[i].(string); ok {
			owners[id] = Owner{Instance: instance, Live: live[instance]}
		}
	}
	return owners, nil
}

// live executes a pipeline, and then reports which instances have a heartbeat.
func (r *Registry) live(
	ctx context.Context, pipe redis.Pipeliner, instances []string, live map[string]bool,
) error {
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

// met are living instances that look-ups have found, at most batchSize: a further look-up asks for
// their heartbeats in the round trip in which it reads the entries.
type met struct {
	mu        sync.Mutex
	instances map[string]struct{}
}

func (m *met) some(most int) (instances []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for instance := range m.instances {
		if len(instances) == most {
			break
		}
		instances = append(instances, instance)
	}
	return instances
}

func (m *met) note(live map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.instances == nil {
		m.instances = make(map[string]struct{})
	}
	for instance, lives := range live {
		if !lives {
			delete(m.instances, instance)
		} else if len(m.instances) < batchSize {
			m.instances[instance] = struct{}{}
		}
	}
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
		if err := r.live(ctx, r.cfg.Client.Pipeline(), some, live); err != nil {
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
