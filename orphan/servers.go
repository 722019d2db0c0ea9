package orphan

import (
	"cmp"
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
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// A server is the only Redis server, or a master of a Cluster. Commands without a key (SCAN, TIME,
// INFO) must use its own client: a Cluster's client sends them to any node.
type server struct {
	client redis.UniversalClient
	addr   string // "": the only server
	life   string // run id, which changes with each restart; "": the only server reports none
	claim  string // its own report of id, config epoch and slots; "": not a Cluster
}

// A topology is a snapshot of the servers. Scans between two met every key that existed throughout
// if the first has no fault and the second is unchanged.
type topology struct {
	masters []server // that answered and have slots
	of      int
	// nil if every key is on one of the masters, and none is migrating
	fault error
	// slot of a Cluster -> index into masters; -1: its owner did not answer
	owner []int
}

// masters asks each node within a time. Its error means that nothing is known. On a Cluster a node
// that does not report its run id counts as silent: it could be restarted unseen.
func masters(ctx context.Context, client redis.UniversalClient, within time.Duration) (*topology, error) {
	_, several := client.(*redis.ClusterClient)
	nodes, err := askAll(ctx, client, within, func(ctx context.Context, client redis.UniversalClient) (string, error) {
		info, err := client.Info(ctx, "server").Result()
		if err != nil && !together.Answered(err) {
			return "", err
		}
		_, after, _ := strings.Cut(info, "run_id:")
		if after == "" && several {
			return "", errors.New("it does not report its run id, so that a restart would go unseen: let this user INFO")
		}
		return strings.TrimSpace(after[:min(len(after), 40)]), nil
	})
	if err != nil {
		return nil, err
	}
	if !several {
		return &topology{masters: []server{{client: client, life: nodes[0].said}}, of: 1}, nil
	}
	return newTopology(nodes), nil
}

// newTopology merges the nodes' views. A slot belongs to the reported owner with the highest epoch,
// as in Redis itself, but only if that node claims it, too.
func newTopology(nodes []node[string]) *topology {
	t := &topology{owner: make([]int, slot.Count)}
	var faults []error
	has := make([]member, slot.Count)
	for _, n := range nodes {
		for _, m := range n.members {
			for _, s := range m.slots {
				for slot := s[0]; slot <= s[1]; slot++ {
					was := has[slot]
					if was.id == "" || cmp.Or(cmp.Compare(m.epoch, was.epoch), cmp.Compare(m.self, was.self)) > 0 {
						has[slot] = m
					}
				}
			}
			if m.self > 0 && len(m.moves) > 0 {
				faults = append(faults, fmt.Errorf("slots of %s are on the move: %s", n.addr, strings.Join(m.moves, " ")))
			}
		}
	}

	known := map[string]int{} // owner's index into masters; -1: it did not answer
	uncovered := 0
	for slot, m := range has {
		i, met := known[m.id]
		if !met {
			i = -1
			if at := slices.IndexFunc(nodes, func(n node[string]) bool { return n.id == m.id }); m.id == "" {
				faults = append(faults, errors.New("slots that nobody has"))
			} else if n := nodes[at]; n.err != nil {
				faults = append(faults, n.err)
			} else if n.client == nil {
				faults = append(faults, fmt.Errorf("node %s is new to the client", n.addr))
			} else {
				i = len(t.masters)
				t.masters = append(t.masters, server{client: n.client, addr: n.addr, life: n.said, claim: n.claim()})
			}
			known[m.id] = i
		}
		if m.self == 0 { // only others report so: the node may not know yet, or no longer
			i = -1
		}
		if t.owner[slot] = i; i < 0 {
			uncovered++
		}
	}
	delete(known, "")
	t.of = len(known)
	if uncovered > 0 || len(faults) > 0 {
		t.fault = fmt.Errorf("orphan: %d of %d masters answer, %d of %d slots are not theirs: %w",
			len(t.masters), t.of, uncovered, slot.Count, errors.Join(faults...))
	}
	return t
}

func (t *topology) at(key string) *server {
	i := 0
	if t.owner != nil {
		i = t.owner[slot.Of(key)]
	}
	if i < 0 {
		return nil
	}
	return &t.masters[i]
}

// together reports whether two keys are on one server wherever slots move.
func (t *topology) together(a, b string) bool { return t.owner == nil || slot.Of(a) == slot.Of(b) }

// changed returns an error if a slot has moved, a master has failed over or does not answer, or a
// server was restarted.
func (t *topology) changed(later *topology) error {
	lives := func(t *topology) map[string]string {
		all := make(map[string]string, len(t.masters))
		for _, s := range t.masters {
			all[s.claim] = s.life
		}
		return all
	}
	was, is := lives(t), lives(later)
	if !slices.Equal(sorted(was), sorted(is)) {
		return cmp.Or(later.fault, errors.New("orphan: slots have moved to another master"))
	}
	for claim, life := range was {
		if is[claim] != life {
			return errors.New("orphan: a server was restarted")
		}
	}
	return nil
}

func (t *topology) digest() string {
	all := make([]string, len(t.masters))
	for i, s := range t.masters {
		all[i] = s.claim + " " + s.life
	}
	slices.Sort(all)
	return digest(strings.Join(all, "\n"))
}

// subscribers counts the subscribers of channels, on all nodes of a Cluster including replicas,
// since each node knows only its own. Pattern subscribers do not count. An error means that nothing
// is known; CLUSTER FORGET removes a node that is gone for good.
func subscribers(
	ctx context.Context, client redis.UniversalClient, channels []string,
) (map[string]int64, error) {
	nodes, err := askAll(ctx, client, nodeTimeout, func(ctx context.Context, client redis.UniversalClient) (map[string]int64, error) {
		return client.PubSubNumSub(ctx, channels...).Result()
	})
	sum := make(map[string]int64, len(channels))
	for _, n := range nodes {
		err = cmp.Or(err, n.err)
		for channel, count := range n.said {
			sum[channel] += count
		}
	}
	if err != nil {
		return nil, fmt.Errorf("orphan: subscribers: %w", err)
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
	nodes, err := askAll(ctx, client, nodeTimeout, func(ctx context.Context, client redis.UniversalClient) (bool, error) {
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
	})
	for _, n := range nodes {
		if err = cmp.Or(err, n.err); n.err == nil && n.said {
			return true, nil
		}
	}
	if err != nil {
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

// nodeTimeout keeps one node that hangs from holding up a pass.
const nodeTimeout = 2 * time.Second

// againTimeout is shorter, as the evidence of a look is ageing.
const againTimeout = evidenceFor / 4

type node[T any] struct {
	id, addr string
	client   redis.UniversalClient // nil: unknown to go-redis
	members  []member              // as this node knows them
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

// askAll asks the only server, or every node that any node of a Cluster knows, replicas included;
// silent ones have an error. Its own error means that none answered.
//
// go-redis' list lacks failed replicas and masters without slots, and its ForEach functions return
// one error for all.
func askAll[T any](ctx context.Context, client redis.UniversalClient, within time.Duration,
	ask func(context.Context, redis.UniversalClient) (T, error),
) ([]node[T], error) {
	c, several := client.(*redis.ClusterClient)
	if !several {
		said, err := ask(ctx, client)
		if err != nil {
			err = fmt.Errorf("orphan: server: %w", err)
		}
		return []node[T]{{client: client, said: said}}, err
	}
	listed, err := listClients(ctx, c, within)
	if err != nil {
		return nil, fmt.Errorf("orphan: nodes of the Cluster: %w", err)
	}
	var errs []error
	all := map[string]node[T]{}
	asked := map[string]error{}
	for _, n := range askEach(ctx, listed, within, ask) {
		if asked[n.addr] = n.err; n.err == nil {
			all[n.id] = n
		}
		errs = append(errs, n.err)
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
				o := *n.client.(*redis.Client).Options()
				o.Addr, o.MinIdleConns = m.addr, 0
				other := redis.NewClient(&o)
				defer other.Close()
				others = append(others, other)
			}
			all[m.id] = silent
		}
	}
	for _, n := range askEach(ctx, others, within, ask) {
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
func listClients(ctx context.Context, c *redis.ClusterClient, within time.Duration) (all []*redis.Client, err error) {
	for range 3 {
		var mu sync.Mutex
		ctx, cancel := context.WithTimeout(ctx, within)
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
