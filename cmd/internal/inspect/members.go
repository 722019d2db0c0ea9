package inspect

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Infos returns INFO of the server, or of each of a Redis Cluster with its replicas, by address; of
// one that does not answer its error.
func (r *Reader) Infos(ctx context.Context) map[string]string {
	var mu sync.Mutex
	all := map[string]string{}
	ask := func(ctx context.Context, node *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		text, err := node.Info(ctx).Result()
		if err != nil {
			text = "not read: " + err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		all[node.Options().Addr] = text
		return nil
	}
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		if err := c.ForEachShard(ctx, ask); err != nil {
			all["cluster"] = "not read: " + err.Error()
		}
	case *redis.Client:
		_ = ask(ctx, c) // errors are in the answers
	}
	return all
}
