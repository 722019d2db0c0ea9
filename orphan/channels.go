package orphan

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// subscribers counts the subscribers of channels, on all nodes of a Cluster, replicas too: each node
// knows its own alone. An error means that a node did not answer, and nothing is known. A node that
// is gone for good has to be forgotten (CLUSTER FORGET). A plain client asks its own server alone.
// Who subscribes to a pattern is not counted.
func subscribers(
	ctx context.Context, client redis.UniversalClient, channels []string,
) (map[string]int64, error) {
	count := func(ctx context.Context, client redis.UniversalClient) (map[string]int64, error) {
		return client.PubSubNumSub(ctx, channels...).Result()
	}
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		sum, err := count(ctx, client)
		if err != nil {
			return nil, fmt.Errorf("orphan: subscribers: %w", err)
		}
		return sum, nil
	}
	nodes, err := askNodes(ctx, c, count)
	if err != nil {
		return nil, err
	}
	sum := make(map[string]int64, len(channels))
	for _, n := range nodes {
		if n.err != nil {
			return nil, fmt.Errorf("orphan: subscribers: %w", n.err)
		}
		for channel, count := range n.said {
			sum[channel] += count
		}
	}
	return sum, nil
}

// channelsMatch tells whether there is a channel with subscribers that matches a pattern, on any node
// of a Cluster. An error means that none is known, and that a node did not answer.
func channelsMatch(ctx context.Context, client redis.UniversalClient, pattern string) (bool, error) {
	match := func(ctx context.Context, client redis.UniversalClient) (bool, error) {
		names, err := client.PubSubChannels(ctx, pattern).Result()
		return len(names) > 0, err
	}
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		found, err := match(ctx, client)
		if err != nil {
			return false, fmt.Errorf("orphan: channels: %w", err)
		}
		return found, nil
	}
	nodes, err := askNodes(ctx, c, match)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, n := range nodes {
		if n.err == nil && n.said {
			return true, nil
		}
		errs = append(errs, n.err)
	}
	if err := errors.Join(errs...); err != nil {
		return false, fmt.Errorf("orphan: channels: %w", err)
	}
	return false, nil
}
