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

// routablePage is how many entries are asked for at once.
const routablePage = 500

// routable asks Redis how many devices of a fleet a router would find: their entry names an
// instance whose heartbeat exists. A device does not know which instance is behind a target, so an
// entry that names another living instance than the one with the socket counts as well.
func routable(
	ctx context.Context, client redis.UniversalClient, keys registry.Layout, partitions int, devices iter.Seq[string],
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

// routableOf is routable for the devices of one partition.
func routableOf(
	ctx context.Context, client redis.UniversalClient, keys registry.Layout, imeis []string,
) (routable int, err error) {
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
