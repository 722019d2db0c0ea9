package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrNotRegistered is returned by Lookup for a device that no instance holds.
var ErrNotRegistered = errors.New("registry: device is not registered")

// Owner says where a device is.
type Owner struct {
	Instance string
	// Live: the instance's heartbeat exists. What is sent to an owner that is not live may be lost:
	// wait for the device to register again.
	Live bool
}

// Lookup returns the owner of a device, in one round trip and as of one instant.
// ErrNotRegistered: no instance holds it. Any other error is Redis' and is counted.
func (r *Registry) Lookup(ctx context.Context, imei string) (Owner, error) {
	keys := []string{r.keys.Registry()}
	out, err := lookupScript.RunRO(ctx, r.cfg.Client, keys, imei, r.keys.Heartbeat("")).Slice()
	if errors.Is(err, redis.Nil) {
		return Owner{}, ErrNotRegistered
	}
	if err == nil && len(out) != 2 {
		err = fmt.Errorf("unexpected answer %v", out)
	}
	if err != nil {
		r.metrics.failures.WithLabelValues("lookup").Inc()
		return Owner{}, fmt.Errorf("registry: look up %q: %w", imei, err)
	}
	return Owner{Instance: fmt.Sprint(out[0]), Live: out[1] == int64(1)}, nil
}
