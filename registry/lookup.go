package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrNotRegistered is returned by Lookup for an id that no instance holds.
var ErrNotRegistered = errors.New("registry: id is not registered")

const lookups = 5

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
	o, err := r.lookup(ctx, id)
	if err != nil && !errors.Is(err, ErrNotRegistered) {
		r.metrics.failures.WithLabelValues("lookup").Inc()
		return Owner{}, fmt.Errorf("registry: look up %q: %w", id, err)
	}
	return o, err
}

func (r *Registry) lookup(ctx context.Context, id string) (Owner, error) {
	_, cluster := r.cfg.Client.(*redis.ClusterClient)
	supposed := ""
	if cluster && r.heldHere(id) {
		supposed = r.id
	}
	for range lookups {
		keys := []string{r.keys.Registry()}
		if supposed != "" {
			keys = append(keys, r.keys.Heartbeat(supposed))
		}
		args := []any{id, r.keys.Heartbeat(""), cluster}
		out, err := lookupScript.RunRO(ctx, r.cfg.Client, keys, args...).Slice()
		switch {
		case errors.Is(err, redis.Nil):
			return Owner{}, ErrNotRegistered
		case err != nil:
			return Owner{}, err
		case len(out) == 2:
			return Owner{Instance: fmt.Sprint(out[0]), Live: out[1] == int64(1)}, nil
		case len(out) != 1 || !cluster:
			return Owner{}, fmt.Errorf("unexpected answer %v", out)
		}
		supposed = fmt.Sprint(out[0])
	}
	return Owner{}, errors.New("the id kept moving during the look-up")
}

func (r *Registry) heldHere(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.table.holdings[id]
	return h != nil && h.claim != nil
}
