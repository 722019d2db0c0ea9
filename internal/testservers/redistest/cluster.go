package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	slots     = 16384
	agreeIn   = time.Minute // on a busy machine
	nodeCalls = 2 * time.Second
)

// Cluster is a test's own.
type Cluster struct {
	// Nodes are the masters, each with an equal share of the slots, in order; then a replica of the
	// first master, of the second, and so on, then further replicas likewise.
	Nodes []*Server

	t       testing.TB
	args    []string
	clients []*redis.Client
}

// StartCluster starts masters, each with that many replicas, and returns once every node reports
// that all is well, after two seconds. A node counts as failed after two seconds as well, unless
// args change that:
//
//	redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, args: append([]string{
		"--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0",
	}, args...)}
	ctx := t.Context()
	for i := range masters * (1 + replicas) {
		n := c.start()
		if i < masters {
			// Two masters that start with the same epoch would have to resolve that first.
			require.NoError(t, n.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
			require.NoError(t, n.ClusterAddSlotsRange(ctx, slots*i/masters, slots*(i+1)/masters-1).Err())
		}
	}
	c.meet()
	c.await("every replica has its master", func(n *redis.Client, i int) error {
		if i < masters {
			return nil
		}
		return n.ClusterReplicate(ctx, c.ID(c.Nodes[i%masters])).Err()
	})
	c.AwaitOK()
	return c
}

// Add starts another master, without slots, that every node knows.
func (c *Cluster) Add() *Server {
	c.t.Helper()
	c.start()
	c.meet()
	c.AwaitOK()
	return c.Nodes[len(c.Nodes)-1]
}

func (c *Cluster) start() *redis.Client {
	c.t.Helper()
	s := start(c.t, "", true, c.args)
	n := newClient(c.t, &redis.Options{
		Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: nodeCalls, ReadTimeout: nodeCalls, WriteTimeout: nodeCalls,
	})
	c.Nodes, c.clients = append(c.Nodes, s), append(c.clients, n)
	return n
}

// meet makes every node meet all others: nobody waits for gossip.
func (c *Cluster) meet() {
	c.t.Helper()
	for i, n := range c.clients {
		for _, other := range c.Nodes[:i] {
			meet := n.Do(c.t.Context(), "CLUSTER", "MEET", "127.0.0.1", other.p.port, other.p.bus)
			require.NoError(c.t, meet.Err())
		}
	}
	c.await("every node knows every node", func(n *redis.Client, _ int) error {
		known := "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))
		return says(n.ClusterInfo(c.t.Context()), known)
	})
}

// AwaitOK returns once every live node reports that all slots are served, and every replica has
// its master's data.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	c.await("all is well", func(n *redis.Client, _ int) error {
		ctx := c.t.Context()
		if err := says(n.ClusterInfo(ctx), "cluster_state:ok"); err != nil {
			return err
		}
		err := says(n.Info(ctx, "replication"), "role:master")
		if err != nil {
			err = says(n.Info(ctx, "replication"), "master_link_status:up")
		}
		return err
	})
}

// Options returns fresh options: all nodes as seeds, contexts honoured, the slot map reloaded often
// enough to see a failover. go-redis' retries are on.
func (c *Cluster) Options() *redis.ClusterOptions {
	o := &redis.ClusterOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: nodeCalls,
		ClusterStateReloadInterval: 100 * time.Millisecond,
	}
	for _, n := range c.Nodes {
		o.Addrs = append(o.Addrs, n.Addr())
	}
	return o
}

// Client is closed with the test.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(c.Options())
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// URL returns a REDIS_URL.
func (c *Cluster) URL() string {
	var others []string
	for _, n := range c.Nodes[1:] {
		others = append(others, "addr="+n.Addr())
	}
	return "redis://" + c.Nodes[0].Addr() + "?" + strings.Join(others, "&")
}

// ID returns a node's id.
func (c *Cluster) ID(of *Server) string {
	c.t.Helper()
	id, err := c.client(of).Do(c.t.Context(), "CLUSTER", "MYID").Text()
	require.NoError(c.t, err)
	return id
}

// Owner returns a key's master, by the nodes that answer.
func (c *Cluster) Owner(key string) *Server {
	c.t.Helper()
	slot, err := c.Slot(key), error(nil)
	for _, n := range c.clients {
		var addr string
		if addr, err = ownerOf(c.t.Context(), n, slot); err == nil {
			return c.node(addr)
		}
	}
	c.t.Fatalf("redistest: nobody has the slot of %q: %v", key, err)
	return nil
}

func ownerOf(ctx context.Context, n *redis.Client, slot int) (addr string, err error) {
	shards, err := n.ClusterShards(ctx).Result()
	if err != nil {
		return "", err
	}
	for _, shard := range shards {
		for _, s := range shard.Slots {
			if int(s.Start) > slot || slot > int(s.End) {
				continue
			}
			for _, node := range shard.Nodes {
				if node.Role == "master" {
					return net.JoinHostPort(node.IP, strconv.FormatInt(node.Port, 10)), nil
				}
			}
		}
	}
	return "", fmt.Errorf("slot %d has no master", slot)
}

// Slot returns a key's slot.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	for _, n := range c.clients {
		if slot, err := n.ClusterKeySlot(c.t.Context(), key).Result(); err == nil {
			return int(slot)
		}
	}
	c.t.Fatal("redistest: no node answers")
	return 0
}

// BeginMove starts moving a key's slot to another master, without any keys. The returned function
// moves all keys, and returns once every live node knows the new owner.
func (c *Cluster) BeginMove(key string, to *Server) (finish func()) {
	c.t.Helper()
	ctx, slot := c.t.Context(), c.Slot(key)
	owner := c.Owner(key)
	from, target := c.client(owner), c.client(to)
	fromID, toID := c.ID(owner), c.ID(to)
	require.NoError(c.t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err())
	require.NoError(c.t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
	return func() {
		c.t.Helper()
		for {
			keys, err := from.ClusterGetKeysInSlot(ctx, slot, 1000).Result()
			require.NoError(c.t, err)
			if len(keys) == 0 {
				break
			}
			for _, k := range keys {
				require.NoError(c.t, c.migrate(ctx, from, to, k))
			}
		}
		require.NoError(c.t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
		require.NoError(c.t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
		c.await("every node knows the new owner", func(n *redis.Client, _ int) error {
			addr, err := ownerOf(ctx, n, slot)
			if err == nil && addr != to.Addr() {
				err = fmt.Errorf("%s has slot %d", addr, slot)
			}
			return err
		})
	}
}

// MoveKey moves one key meanwhile.
func (c *Cluster) MoveKey(key string, to *Server) {
	c.t.Helper()
	require.NoError(c.t, c.migrate(c.t.Context(), c.client(c.Owner(key)), to, key))
}

func (c *Cluster) migrate(ctx context.Context, from *redis.Client, to *Server, key string) error {
	return from.Migrate(ctx, "127.0.0.1", strconv.Itoa(to.p.port), key, 0, nodeCalls).Err()
}

// TakeOver makes a replica a master without asking the others (CLUSTER FAILOVER TAKEOVER).
func (c *Cluster) TakeOver(replica *Server) {
	c.t.Helper()
	n := c.client(replica)
	require.NoError(c.t, n.Do(c.t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err())
	c.await("the replica leads", func(other *redis.Client, _ int) error {
		if other != n {
			return nil
		}
		return says(n.Info(c.t.Context(), "replication"), "role:master")
	})
}

func (c *Cluster) client(of *Server) *redis.Client {
	for i, n := range c.Nodes {
		if n == of {
			return c.clients[i]
		}
	}
	c.t.Fatal("redistest: no node of this Cluster")
	return nil
}

func (c *Cluster) node(addr string) *Server {
	for _, n := range c.Nodes {
		if n.Addr() == addr {
			return n
		}
	}
	c.t.Fatalf("redistest: no node has the address %s", addr)
	return nil
}

func (c *Cluster) await(what string, ask func(n *redis.Client, i int) error) {
	c.t.Helper()
	late := time.Now().Add(agreeIn)
	for i, n := range c.clients {
		for {
			err := ask(n, i)
			var refused *net.OpError
			if err == nil || errors.As(err, &refused) && refused.Op == "dial" {
				break
			}
			if time.Now().After(late) {
				c.t.Fatalf("redistest: within %s not: %s: %v", agreeIn, what, err)
			}
			time.Sleep(pollEvery)
		}
	}
}

func says(answer *redis.StringCmd, line string) error {
	text, err := answer.Result()
	if err == nil && !strings.Contains(text, line+"\r\n") {
		err = fmt.Errorf("no %s in:\n%s", line, text)
	}
	return err
}
