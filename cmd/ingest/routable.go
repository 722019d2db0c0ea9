package main

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

const routablePage = 500

// routable counts the devices that a router would find: their entry names an instance whose
// heartbeat exists. A device cannot see which instance serves its target, so an entry that names
// another living instance than the socket's counts too.
func routable(
	ctx context.Context, client redis.UniversalClient, keys registry.Layout, partitions int,
	devices iter.Seq[string],
) (n int, err error) {
	imeis := make([][]string, partitions)
	for imei := range devices {
		k := guard.PartitionOf(imei, partitions)
		imeis[k] = append(imeis[k], imei)
	}
	for k, imeis := range imeis {
		some, err := routableOf(ctx, client, keys.Partition(k, partitions), imeis)
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

func routableOf(
	ctx context.Context, client redis.UniversalClient, keys registry.Layout, imeis []string,
) (routable int, err error) {
	devices := make(map[string]int) // by the instance in their entries
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
