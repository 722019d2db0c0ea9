package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/registry"
)

// routablePage is how many entries are asked for at once.
const routablePage = 500

// Routable asks Redis how many of the fleet's connected devices a router would find: their entry
// names an instance whose heartbeat exists. A device does not know which instance is behind a
// target. So an entry that names another living instance than the one with the socket counts as
// well; [Fleet.Where] is for a caller who knows. It reads only. Errors are go-redis'.
func (f *Fleet) Routable(
	ctx context.Context, client redis.UniversalClient, keys registry.Layout,
) (routable int, err error) {
	imeis := slices.Collect(maps.Keys(f.Where()))
	devices := make(map[string]int) // by the instance that their entries name
	for page := range slices.Chunk(imeis, routablePage) {
		owners, err := client.HMGet(ctx, keys.Registry(), page...).Result()
		if err != nil {
			return 0, fmt.Errorf("simulate: read the registry: %w", err)
		}
		for _, owner := range owners {
			if id, ok := owner.(string); ok {
				devices[id]++
			}
		}
	}
	pipe := client.Pipeline()
	alive := make(map[string]*redis.IntCmd)
	for id := range devices {
		alive[id] = pipe.Exists(ctx, keys.Heartbeat(id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("simulate: read heartbeats: %w", err)
	}
	for id, n := range devices {
		if alive[id].Val() == 1 {
			routable += n
		}
	}
	return routable, nil
}
