package orphan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// nodeTimeout bounds a call to one node, so that one that hangs does not hold up a pass.
const nodeTimeout = 2 * time.Second

// A server is one Redis server that has keys: the only one there is, or a master of a Cluster.
// Commands without a key (SCAN, TIME, INFO) go to it through its own client alone: a Cluster's client
// sends them to any node.
type server struct {
	client redis.UniversalClient
	addr   string // for the log
	life   string // changes when the server is restarted; "": it does not say
	claim  string // its node id, config epoch and slots, as it says itself; "": no Cluster
}

// A topology is which servers there are, at one time. A pass asks for one before and one after; it is
// complete if the first has no fault and has not changed.
type topology struct {
	masters []server // that answered, and have slots
	of      int      // masters that there are
	// fault is nil if every key is on one of the masters, and none is on its way to another.
	fault error

	owner []int // of a Cluster's slots: the index into masters, -1 if it did not answer
}

// masters finds the server of a plain client, or every master of a Cluster. An error means that
// nothing is known.
func masters(ctx context.Context, client redis.UniversalClient) (*topology, error) {
	if _, ok := client.(*redis.ClusterClient); ok {
		return nil, errNotBuilt
	}
	life, err := lifeOf(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("orphan: server: %w", err)
	}
	return &topology{masters: []server{{client: client, life: life}}, of: 1}, nil
}

// at is the server that has a key, or nil if that one did not answer.
func (t *topology) at(key string) *server {
	if t.owner == nil {
		return &t.masters[0]
	}
	if i := t.owner[slotOf(key)]; i >= 0 {
		return &t.masters[i]
	}
	return nil
}

// changed says what became of the servers until later: a slot has moved, a master has failed over,
// or a server was restarted. nil: they are as they were.
func (t *topology) changed(later *topology) error {
	return errNotBuilt
}

// subscribers counts the subscribers of channels, on all nodes of a Cluster, replicas too. An error
// means that one node did not answer. A plain client asks its own server alone. Subscribers by
// pattern are not counted.
func subscribers(ctx context.Context, client redis.UniversalClient, channels []string) (map[string]int64, error) {
	if _, ok := client.(*redis.ClusterClient); ok {
		return nil, errNotBuilt
	}
	return client.PubSubNumSub(ctx, channels...).Result()
}

// channelsMatch tells whether there is a channel with subscribers that matches a pattern, on any
// node of a Cluster. An error means that a node did not answer, and no other has one.
func channelsMatch(ctx context.Context, client redis.UniversalClient, pattern string) (bool, error) {
	if _, ok := client.(*redis.ClusterClient); ok {
		return false, errNotBuilt
	}
	names, err := client.PubSubChannels(ctx, pattern).Result()
	return len(names) > 0, err
}

// serverTime is the server's clock.
func serverTime(ctx context.Context, s server) (time.Time, error) {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("orphan: time of %s: %w", s.addr, err)
	}
	return now, nil
}

// lifeOf is the run id of a server, "" if it does not offer one.
func lifeOf(ctx context.Context, client redis.UniversalClient) (string, error) {
	info, err := client.Info(ctx, "server").Result()
	if refused := redis.Error(nil); err != nil && !errors.As(err, &refused) {
		return "", err
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}
