package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// ErrNotRegistered is returned by Lookup for an id that no instance holds.
var ErrNotRegistered = errors.New("registry: id is not registered")

const (
	// lookups is how often owners may change while a Redis Cluster is asked for their heartbeats.
	lookups = 5
	// lookedUp is the most ids that one script looks up.
	lookedUp = 1000
)

// Owner is the instance that holds an id.
type Owner struct {
	Instance string
	// Live reports whether the instance's heartbeat exists. A message to an owner that is not live
	// may be lost: wait for the id to register again.
	Live bool
}

// Lookup returns the owner of an id, as of one instant, or ErrNotRegistered. Other errors are
// Redis' and are counted. It takes one round trip; on a Redis Cluster one more, unless the id is
// held here, and it fails while the keys' slot moves.
func (r *Registry) Lookup(ctx context.Context, id string) (Owner, error) {
	owners, err := r.LookupMany(ctx, []string{id})
	if err != nil {
		return Owner{}, err
	}
	if o, found := owners[id]; found {
		return o, nil
	}
	return Owner{}, ErrNotRegistered
}

// LookupMany returns the owners of many ids, 1,000 of them as of one instant. An id that nobody
// holds is missing from the map. Errors are Redis' and are counted.
func (r *Registry) LookupMany(ctx context.Context, ids []string) (map[string]Owner, error) {
	owners, presumed := make(map[string]Owner, len(ids)), map[string]bool{r.id: true}
	for some := range slices.Chunk(ids, lookedUp) {
		if err := r.lookup(ctx, some, presumed, owners); err != nil {
			r.metrics.failures.WithLabelValues("lookup").Inc()
			return nil, fmt.Errorf("registry: look up: %w", err)
		}
	}
	return owners, nil
}

// lookup adds the owners of ids to owners. On a Redis Cluster it asks for the heartbeats of the
// presumed instances, and again with those that it has met.
func (r *Registry) lookup(
	ctx context.Context, ids []string, presumed map[string]bool, owners map[string]Owner,
) error {
	for range lookups {
		found, live, err := r.ask(ctx, ids, presumed)
		if err != nil {
			return err
		}
		whole := true
		for i, id := range ids {
			if instance, ok := found[i].(string); ok {
				lives, asked := live[instance]
				owners[id] = Owner{Instance: instance, Live: lives}
				presumed[instance] = true
				whole = whole && asked
			} else {
				delete(owners, id)
			}
		}
		if whole {
			return nil
		}
	}
	return errors.New("the ids kept moving during the look-up")
}

// entries returns what the entries of ids name, nil for those without an entry.
func (r *Registry) entries(ctx context.Context, ids []string) ([]any, error) {
	found, _, err := r.ask(ctx, ids, nil)
	return found, err
}

// ask reads the entries and, unless presumed is nil, whether their owners live.
func (r *Registry) ask(
	ctx context.Context, ids []string, presumed map[string]bool,
) (found []any, live map[string]bool, err error) {
	_, cluster := r.cfg.Client.(*redis.ClusterClient)
	keys, prefix := []string{r.keys.Registry(), r.keys.Beats()}, ""
	if presumed != nil {
		prefix = r.keys.Heartbeat("")
	}
	if cluster {
		for instance := range presumed {
			keys = append(keys, r.keys.Heartbeat(instance))
		}
	}
	args := []any{r.id, r.Newest(), prefix, cluster}
	for _, id := range ids {
		args = append(args, id)
	}
	out, err := lookupScript.RunRO(ctx, r.cfg.Client, keys, args...).Slice()
	if err != nil {
		return nil, nil, err
	}
	var asked, lives []any
	if len(out) == 3 {
		found, _ = out[0].([]any)
		asked, _ = out[1].([]any)
		lives, _ = out[2].([]any)
	}
	if len(found) != len(ids) || len(asked) != len(lives) {
		return nil, nil, fmt.Errorf("unexpected answer %v", out)
	}
	live = make(map[string]bool, len(asked))
	for i, instance := range asked {
		live[fmt.Sprint(instance)] = lives[i] == int64(1)
	}
	return found, live, nil
}

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
	for page, err := range guard.Members(ctx, r.cfg.Client, r.keys.Roster(), guard.Paging{}) {
		if err != nil {
			return nil, fmt.Errorf("registry: list owners: %w", err)
		}
		instances = append(instances, page.Items...)
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

// Holdings yields the ids whose entries name an instance, about 1,000 a call. It reads the
// instance's reverse index, and so nothing of an owner that keeps none (NoReverseIndex, a plain
// writer). An id that is registered or released meanwhile may be missing, or yielded twice. An
// error ends it.
func (r *Registry) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for page, err := range guard.Members(ctx, r.cfg.Client, r.keys.Devices(instance), guard.Paging{}) {
			var found []any
			if err == nil && len(page.Items) > 0 {
				found, err = r.cfg.Client.HMGet(ctx, r.keys.Registry(), page.Items...).Result()
			}
			if err != nil {
				yield("", fmt.Errorf("registry: list what %s holds: %w", instance, err))
				return
			}
			for i, id := range page.Items {
				if found[i] == instance && !yield(id, nil) {
					return
				}
			}
		}
	}
}
