// Package keyless selects the server for commands without a key, such as SCAN, TIME, INFO, CONFIG
// and PUBLISH. A Redis Cluster's client sends each to any node: a scan continues on another server
// than it began on, and PUBLISH counts the receivers of a server without any.
package keyless

import (
	"context"
	"fmt"

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

// TagOf returns what the names of channels begin with. Pub/Sub knows no databases: without it,
// fleets in two databases would hear each other. It is "" in database 0, and "db2:" in database 2.
func TagOf(db int) string {
	if db > 0 {
		return fmt.Sprintf("db%d:", db)
	}
	return ""
}

// Tag is TagOf the client's database.
func Tag(client redis.UniversalClient) string {
	if c, ok := client.(*redis.Client); ok {
		return TagOf(c.Options().DB)
	}
	return ""
}

// Channel returns the channel of this name in the client's database.
func Channel(client redis.UniversalClient, name string) string { return Tag(client) + name }
