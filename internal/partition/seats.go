package partition

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// Each rank yields step longer than the one before: a release wakes all within 50 ms, and a new
	// leader should follow within moments. All but the first yield half a lease TTL more: the
	// readings of their ticks, each GAP/2, then spare them looks at leases that are renewed.
	step, first = 50 * time.Millisecond, 3
	// More than oftenMost contenders read the contenders less often than once a GAP, so that the
	// total cost stays the same.
	oftenMost = 10
	// About most contenders are read, in one call. Among more, some share a rank.
	most = 1000
)

// seats ranks the replicas that contend, so that each partition has another leader.
type seats struct {
	client   redis.UniversalClient
	layouts  []guard.Layout
	instance string
	gap, ttl time.Duration // GAP, and the lease's TTL
	dead     time.Duration // how long the dead still count as contenders: a heartbeat's TTL
	leads    func() []int
	readings *streak.Streak

	mu    sync.Mutex
	rank  []int // by partition: living contenders that rank before this one
	peers int
}

func newSeats(c janitor.Config, reg *Registry, leads func() []int) *seats {
	s := &seats{
		client: c.Control, instance: reg.Instance(), gap: reg.Timing().Gap(), dead: reg.Timing().TTL,
		ttl: cmp.Or(c.LeaseTTL, janitor.DefaultLeaseTTL), leads: leads,
		rank: make([]int, len(reg.parts)), peers: 1,
		readings: streak.New(cmp.Or(c.Logger, slog.Default()),
			"cannot read contenders; keeping the old ranking of replicas", "can read contenders again",
			"remedy", "allow SSCAN, or delete the key if it is not a set: ticks recreate it"),
	}
	for _, part := range reg.parts {
		s.layouts = append(s.layouts, part.Layout())
	}
	return s
}

// yield is janitor.Config.Yield: a lower rank comes later, and so does a replica that already leads
// more than its share.
func (s *seats) yield(partition int) time.Duration {
	s.mu.Lock()
	rank, peers := s.rank[partition], s.peers
	s.mu.Unlock()
	over := max(0, len(s.leads())-fair(len(s.layouts), peers))
	yield := time.Duration(rank+2*over) * min(step, s.ttl/30)
	if rank >= first {
		yield += s.ttl / 2
	}
	return yield
}

// keep gives up leases that others should have. Before, it waits until the dead no longer count,
// and reads once more.
func (s *seats) keep(ctx context.Context, resign func(ctx context.Context, which []int)) {
	at := rand.N(len(s.layouts))
	var read time.Time
	for fair := time.Now(); wait.For(ctx, s.ttl/2+rand.N(s.ttl)); {
		if len(s.excess()) == 0 {
			fair = time.Now()
		}
		give := time.Since(fair) > s.dead
		if !give && time.Since(read) < s.every() {
			continue
		}
		at = (at + 1) % len(s.layouts)
		living, err := s.living(ctx, s.layouts[at])
		if err == nil || together.Answered(err) {
			s.readings.Note(err) // beats and ticks log that Redis is down
		}
		if err != nil {
			continue
		}
		s.met(living)
		read = time.Now()
		if give {
			resign(ctx, s.excess())
			fair = time.Now()
		}
	}
}

func (s *seats) every() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gap * time.Duration(max(1, s.peers/oftenMost))
}

// living returns a partition's contenders that have a heartbeat.
func (s *seats) living(ctx context.Context, of guard.Layout) (living []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.gap)
	defer cancel()
	ids, _, err := s.client.SScan(ctx, of.Contenders(), 0, "", most).Result()
	if err != nil {
		return nil, err
	}
	pipe := s.client.Pipeline()
	beats := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		beats[i] = pipe.Exists(ctx, of.Heartbeat(id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for i, beat := range beats {
		if beat.Val() > 0 {
			living = append(living, ids[i])
		}
	}
	return living, nil
}

func (s *seats) met(living []string) {
	rank := make([]int, len(s.layouts))
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

// before is rendezvous hashing (Thaler, Ravishankar).
func before(a, b string, partition int) bool {
	x, y := weight(a, partition), weight(b, partition)
	return x > y || x == y && a > b
}

func weight(id string, partition int) uint64 {
	return xxhash.Sum64String(strconv.Itoa(partition) + "/" + id)
}

func fair(partitions, peers int) int { return (partitions + peers - 1) / peers }

// excess returns the leases beyond this replica's share plus one for which most others rank before
// it.
func (s *seats) excess() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.leads()
	over := len(mine) - fair(len(s.layouts), s.peers) - 1
	if over <= 0 {
		return nil
	}
	slices.SortStableFunc(mine, func(a, b int) int { return cmp.Compare(s.rank[b], s.rank[a]) })
	return mine[:over]
}
