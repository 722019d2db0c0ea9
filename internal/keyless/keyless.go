// Package keyless selects the server for commands without a key, such as SCAN, TIME, INFO, CONFIG
// and PUBLISH. A Redis Cluster's client sends each to any node: a scan continues on another server
// than it began on, and PUBLISH counts the receivers of a server without any.
package keyless

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// At returns the client itself, or on a Redis Cluster that of the key's master. It fails if the
// client knows none.
func At(
	ctx context.Context, client redis.UniversalClient, key string,
) (redis.UniversalClient, error) {
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		return client, nil
	}
	node, err := c.MasterForKey(ctx, key)
	if err != nil {
		return nil, err // not a nil *redis.Client in an interface
	}
	return node, nil
}
