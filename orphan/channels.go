package orphan

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// subscribers counts the subscribers of channels, on all nodes of a Cluster including replicas,
// since each node knows only its own. Pattern subscribers do not count. An error means that nothing
// is known; CLUSTER FORGET removes a node that is gone for good.
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

// channelsMatch reports whether any node has a channel with subscribers that matches a pattern. An
// error means that none was found and a node did not answer.
//
// It asks for the likely channels first: listing all matches blocks a Redis with 100,000 channels
// for 45 ms, and no command stops at the first match.
func channelsMatch(
	ctx context.Context, client redis.UniversalClient, pattern string, likely ...string,
) (bool, error) {
	match := func(ctx context.Context, client redis.UniversalClient) (bool, error) {
		if len(likely) > 0 {
			some, err := client.PubSubNumSub(ctx, likely...).Result()
			if err != nil {
				return false, err
			}
			for _, n := range some {
				if n > 0 {
					return true, nil
				}
			}
		}
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

// likelyChannels replaces a pattern's only '*' by each name. Other patterns have none.
func likelyChannels(pattern string, names []string) (channels []string) {
	before, after, ok := strings.Cut(pattern, "*")
	if !ok || strings.ContainsAny(before+after, `*?[\`) {
		return nil
	}
	for _, name := range names {
		channels = append(channels, before+name+after)
	}
	return channels
}
