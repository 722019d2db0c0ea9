package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Member is a server of Redis, as it describes itself.
type Member struct {
	Server string
	Info   string
	Config string // settings, a line each; "": this user may not ask
	Error  string
}

// harmless settings hold no secrets.
var harmless = []string{
	"activedefrag", "appendfsync", "appendonly", "busy-reply-threshold", "client-output-buffer-limit",
	"cluster-allow-reads-when-down", "cluster-node-timeout", "cluster-replica-validity-factor",
	"cluster-require-full-coverage", "hz", "io-threads", "latency-monitor-threshold", "lazyfree-lazy-eviction",
	"lazyfree-lazy-expire", "maxclients", "maxmemory", "maxmemory-policy", "maxmemory-samples",
	"min-replicas-max-lag", "min-replicas-to-write", "notify-keyspace-events", "repl-backlog-size", "save",
	"slowlog-log-slower-than", "stop-writes-on-bgsave-error", "tcp-keepalive", "timeout",
}

// Members asks the server, or each of a Redis Cluster with its replicas.
func (r *Reader) Members(ctx context.Context) []Member {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return []Member{member(ctx, r.client, "server")}
	}
	var mu sync.Mutex
	var all []Member
	// Errors are in the answers.
	err := c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		m := member(ctx, node, node.Options().Addr)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m)
		return nil
	})
	if err != nil {
		all = append(all, Member{Server: "cluster", Error: err.Error()})
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Server, b.Server) })
	return all
}

func member(ctx context.Context, client redis.UniversalClient, name string) (m Member) {
	m.Server = name
	var err error
	if m.Info, err = client.Info(ctx, "everything").Result(); err != nil { // some know no sections
		m.Info, err = client.Info(ctx).Result()
	}
	if err != nil {
		m.Error = err.Error()
		return m
	}
	p := client.Pipeline()
	asked := make([]*redis.MapStringStringCmd, len(harmless))
	for i, setting := range harmless {
		asked[i] = p.ConfigGet(ctx, setting)
	}
	_, _ = p.Exec(ctx) // without that right there is still INFO
	for _, c := range asked {
		for _, setting := range slices.Sorted(maps.Keys(c.Val())) {
			m.Config += fmt.Sprintf("%s %s\n", setting, c.Val()[setting])
		}
	}
	return m
}
