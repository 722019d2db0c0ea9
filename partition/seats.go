package partition

import (
	"cmp"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// contenders is how many replicas contend for the lease of a partition, and tick its witness.
	contenders = 3
	// oftenMost is up to how many replicas each reads a roster once a GAP; more read it more seldom,
	// so that all together cost the same.
	oftenMost = 10
	// seldom is how many times in a row a replica that does not contend leaves it at that, for each
	// replica that lives. So one of them looks at the lease each fourth retry. Where there is one
	// partition that is cheap, and one looks each retry.
	seldom, seldomOfOne = 4, 1
	// page is how many ids a page of the roster has, asked how many heartbeats are asked for at once.
	page, asked = 1000, 500
)

// seats are who contends for which partition, and which leases are given up.
type seats struct {
	client   redis.UniversalClient
	layouts  []guard.Layout
	instance string
	gap, ttl time.Duration // GAP, and the lease's TTL
	leads    func() []int  // the partitions that this replica leads
	lot      func(peers int) bool

	mu    sync.Mutex
	rank  []int // by partition: how many living replicas stand before this one
	peers int   // living replicas
}

func newSeats(c janitor.Config, reg *Registry, leads func() []int) *seats {
	s := &seats{
		client: c.Control, instance: reg.Instance(), gap: reg.Timing().Gap(),
		ttl: cmp.Or(c.LeaseTTL, janitor.DefaultLeaseTTL), leads: leads,
		rank: make([]int, len(reg.parts)), peers: 1,
	}
	for _, part := range reg.parts {
		s.layouts = append(s.layouts, part.Layout())
	}
	rarely := seldom
	if len(s.layouts) == 1 {
		rarely = seldomOfOne
	}
	s.lot = func(peers int) bool { return rand.N(rarely*peers) == 0 }
	return s
}

// contend is janitor.Config.Contend of a partition. Who ranks first comes first, and who leads more
// than its share already comes later. Where there is one partition there is nothing to spread, and
// the first to come leads.
//
// The others contend by lot, all of them together about as often as one that contends. So a lease
// is found free, and its witness is heard, also when all contenders died at once, without anybody
// having to know it.
func (s *seats) contend(partition int) func() (time.Duration, bool) {
	return func() (time.Duration, bool) {
		s.mu.Lock()
		rank, peers := s.rank[partition], s.peers
		s.mu.Unlock()
		one := len(s.layouts) == 1
		switch {
		case rank >= contenders:
			return 0, s.lot(peers)
		case one:
			return 0, true
		}
		over := max(0, len(s.leads())-fair(len(s.layouts), peers))
		return time.Duration(rank)*s.ttl/30 + time.Duration(over)*s.ttl/15, true
	}
}

// keep reads again and again who lives, and has leases given up that others should have, until ctx
// ends.
func (s *seats) keep(ctx context.Context, resign func(ctx context.Context, which []int)) {
	at := rand.N(len(s.layouts))
	var read time.Time
	for wait.For(ctx, s.ttl/2+rand.N(s.ttl)) {
		s.mu.Lock()
		every := s.gap * time.Duration(max(1, s.peers/oftenMost))
		s.mu.Unlock()
		if time.Since(read) >= every {
			at = (at + 1) % len(s.layouts)
			living, err := s.living(ctx, s.layouts[at])
			if err != nil { // the last reading stands: the beats tell that Redis is away
				continue
			}
			s.met(living)
			read = time.Now()
		}
		if which := s.excess(); len(which) > 0 {
			resign(ctx, which)
		}
	}
}

// living reads who is on the roster of a partition and has a heartbeat there.
func (s *seats) living(ctx context.Context, of guard.Layout) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.gap)
	defer cancel()
	var roster []string
	ids := s.client.SScan(ctx, of.Roster(), 0, "", page).Iterator()
	for ids.Next(ctx) {
		roster = append(roster, ids.Val())
	}
	if err := ids.Err(); err != nil {
		return nil, err
	}
	slices.Sort(roster) // a scan may name one twice
	roster = slices.Compact(roster)
	var living []string
	for ids := range slices.Chunk(roster, asked) {
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = of.Heartbeat(id)
		}
		n, err := s.client.Exists(ctx, keys...).Result()
		if err != nil {
			return nil, err
		}
		if int(n) == len(ids) { // as nearly always
			living = append(living, ids...)
			continue
		}
		cmds, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				p.Exists(ctx, key)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i, cmd := range cmds {
			if cmd.(*redis.IntCmd).Val() == 1 {
				living = append(living, ids[i])
			}
		}
	}
	return living, nil
}

// met ranks this replica among those that live, in each partition.
func (s *seats) met(living []string) {
	rank := make([]int, len(s.rank))
	peers := 1
	for _, id := range living {
		if id == s.instance {
			continue
		}
		peers++
		for k := range rank {
			if before(id, s.instance, k) {
				rank[k]++
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rank, s.peers = rank, peers
}

// before tells whether a ranks before b in a partition: rendezvous hashing (Thaler, Ravishankar).
func before(a, b string, partition int) bool {
	x, y := weight(a, partition), weight(b, partition)
	return x > y || x == y && a > b
}

func weight(id string, partition int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(partition >> 8), byte(partition)})
	_, _ = h.Write([]byte(id))
	// The last bytes of FNV hardly reach its upper bits: mixed as in MurmurHash3.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// fair is how many of so many partitions each of the peers should lead at most.
func fair(partitions, peers int) int { return (partitions + peers - 1) / peers }

// excess are the leases beyond this replica's share and one more: of the partitions in which most
// others rank before it.
func (s *seats) excess() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.leads()
	over := len(mine) - fair(len(s.rank), s.peers) - 1
	if over <= 0 {
		return nil
	}
	slices.SortStableFunc(mine, func(a, b int) int { return cmp.Compare(s.rank[b], s.rank[a]) })
	return mine[:over]
}
