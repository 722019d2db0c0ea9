package orphan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/sourcegraph/conc/pool"
)

// nodeTimeout keeps one node that hangs from holding up a pass.
const nodeTimeout = 2 * time.Second

// againTimeout is shorter, as the evidence of a look is ageing.
const againTimeout = evidenceFor / 4

type node[T any] struct {
	id, addr string
	client   *redis.Client // nil: unknown to go-redis
	members  []member      // as this node knows them
	said     T
	err      error // then only id and addr are set
}

type member struct {
	id, addr string
	self     int // 1: this node reported the line; 0: another
	epoch    uint64
	slots    [][2]int
	moves    []string // in migration; each node reports only its own
	claim    string
}

func (n node[T]) claim() string {
	for _, m := range n.members {
		if m.self > 0 {
			return m.claim
		}
	}
	return ""
}

// askNodes asks every node that any node knows, replicas included; silent ones have an error. Its
// own error means that none answered.
//
// go-redis' list lacks failed replicas and masters without slots, and its ForEach functions return
// one error for all.
func askNodes[T any](ctx context.Context, c *redis.ClusterClient,
	ask func(context.Context, redis.UniversalClient) (T, error),
) ([]node[T], error) {
	listed, err := listClients(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("orphan: nodes of the Cluster: %w", err)
	}
	var errs []error
	all := map[string]node[T]{}
	asked := map[string]error{}
	for _, n := range askEach(ctx, listed, nodeTimeout, ask) {
		asked[n.addr] = n.err
		if n.err != nil {
			errs = append(errs, n.err)
			continue
		}
		all[n.id] = n
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("orphan: no node of the Cluster answers: %w", errors.Join(errs...))
	}

	var others []*redis.Client
	for _, n := range slices.Collect(maps.Values(all)) {
		for _, m := range n.members {
			if _, met := all[m.id]; met {
				continue
			}
			silent := node[T]{id: m.id, addr: m.addr, err: asked[m.addr]}
			if silent.err == nil {
				silent.err = fmt.Errorf("node %s at %s did not answer", m.id, m.addr)
				o := *n.client.Options()
				o.Addr, o.MinIdleConns = m.addr, 0
				other := redis.NewClient(&o)
				defer other.Close()
				others = append(others, other)
			}
			all[m.id] = silent
		}
	}
	for _, n := range askEach(ctx, others, nodeTimeout, ask) {
		if n.err == nil {
			n.client = nil // it is closed
			all[n.id] = n
		}
	}
	nodes := slices.Collect(maps.Values(all))
	slices.SortFunc(nodes, func(a, b node[T]) int { return strings.Compare(a.id, b.id) })
	return nodes, nil
}

// listClients retries: go-redis refreshes its list from random nodes, and one that hangs must not
// end this.
func listClients(ctx context.Context, c *redis.ClusterClient) (all []*redis.Client, err error) {
	for range 3 {
		var mu sync.Mutex
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		err = c.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, node)
			return nil
		})
		if cancel(); err == nil {
			break
		}
	}
	return all, err
}

func askEach[T any](ctx context.Context, clients []*redis.Client, within time.Duration,
	ask func(context.Context, redis.UniversalClient) (T, error),
) []node[T] {
	p := pool.NewWithResults[node[T]]()
	for _, client := range clients {
		p.Go(func() node[T] {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			n := node[T]{addr: client.Options().Addr, client: client}
			text, err := client.ClusterNodes(ctx).Result()
			if err == nil {
				n.members, n.id, err = parseNodes(text)
			}
			if err == nil {
				n.said, err = ask(ctx, client)
			}
			if err != nil {
				n.err = fmt.Errorf("node %s: %w", n.addr, err)
			}
			return n
		})
	}
	return p.Wait()
}

func parseNodes(text string) (all []member, self string, err error) {
	for line := range strings.Lines(text) {
		m, flags, err := parseMember(line)
		if err != nil {
			return nil, "", err
		}
		if slices.Contains(flags, "myself") {
			m.self, self = 1, m.id
		}
		all = append(all, m)
	}
	if self == "" {
		return nil, "", fmt.Errorf("CLUSTER NODES without the node itself: %.200q", text)
	}
	return all, self, nil
}

// parseMember parses
//
//	<id> <ip:port@bus[,hostname]> <flags> <master> <ping> <pong> <epoch> <link> <slot> <slot> ...
//
// where a slot is 7, or 0-5460, or [93->-<id>] if it migrates to that node, or [77-<-<id>] from
// it.
func parseMember(line string) (m member, flags []string, err error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return m, nil, fmt.Errorf("a line of CLUSTER NODES is %.200q", line)
	}
	addr, _, _ := strings.Cut(f[1], "@")
	m = member{id: f[0], addr: addr, claim: strings.Join(append([]string{f[0], f[6]}, f[8:]...), " ")}
	if m.epoch, err = strconv.ParseUint(f[6], 10, 64); err != nil {
		return m, nil, fmt.Errorf("an epoch in CLUSTER NODES: %w", err)
	}
	for _, s := range f[8:] {
		if strings.HasPrefix(s, "[") {
			m.moves = append(m.moves, s)
			continue
		}
		from, to, isRange := strings.Cut(s, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || a < 0 || b >= slot.Count || a > b {
			return m, nil, fmt.Errorf("a slot in CLUSTER NODES is %.100q", s)
		}
		m.slots = append(m.slots, [2]int{a, b})
	}
	return m, strings.Split(f[2], ","), nil
}
