package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// A server is the only Redis server, or a master of a Cluster. Commands without a key (SCAN, TIME,
// INFO) must use its own client: a Cluster's client sends them to any node.
type server struct {
	client redis.UniversalClient
	addr   string // "": the only server
	life   string // run id, which changes with each restart; "": none reported
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
	// nodes of a Cluster, replicas included
	answered []*redis.Client
}

// masters returns an error if nothing is known.
func masters(ctx context.Context, client redis.UniversalClient) (*topology, error) {
	if c, ok := client.(*redis.ClusterClient); ok {
		nodes, err := askNodes(ctx, c, lifeOf)
		if err != nil {
			return nil, err
		}
		return newTopology(nodes), nil
	}
	life, err := lifeOf(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("orphan: server: %w", err)
	}
	return &topology{masters: []server{{client: client, life: life}}, of: 1}, nil
}

// again asks only the nodes that answered before. If a silent node has since taken another's slots,
// the nodes that voted for it reveal that.
func (t *topology) again(ctx context.Context) *topology {
	nodes := askEach(ctx, t.answered, againTimeout, lifeOf)
	nodes = slices.DeleteFunc(nodes, func(n node[string]) bool { return n.err != nil })
	met := map[string]bool{}
	for _, n := range nodes {
		met[n.id] = true
	}
	for _, n := range slices.Clone(nodes) {
		for _, m := range n.members {
			if !met[m.id] {
				met[m.id] = true
				err := fmt.Errorf("node %s at %s did not answer", m.id, m.addr)
				nodes = append(nodes, node[string]{id: m.id, addr: m.addr, err: err})
			}
		}
	}
	return newTopology(nodes)
}

// newTopology merges the nodes' views. A slot belongs to the reported owner with the highest epoch,
// as in Redis itself, but only if that node claims it, too.
func newTopology(nodes []node[string]) *topology {
	t := &topology{owner: make([]int, slot.Count)}
	var faults []error
	has := make([]member, slot.Count)
	for _, n := range nodes {
		if n.err == nil && n.client != nil {
			t.answered = append(t.answered, n.client)
		}
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

func serverTime(ctx context.Context, s server) (time.Time, error) {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("orphan: time of server %s: %w", s.addr, err)
	}
	return now, nil
}

func lifeOf(ctx context.Context, client redis.UniversalClient) (string, error) {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		if together.Answered(err) {
			return "", nil
		}
		return "", err
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}
