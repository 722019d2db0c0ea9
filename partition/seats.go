package partition

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// fullSeats contend first, over all partitions, leastSeats in each.
	fullSeats, leastSeats = 32, 3
	// Each rank comes step later than the one before, by at most steps: a release wakes all within
	// 50 ms, and a new leader should follow within moments.
	step, steps = 50 * time.Millisecond, 5
	// More than oftenMost contenders read the contenders less often than once a GAP, so that the
	// total cost stays the same.
	oftenMost   = 10
	page, asked = 1000, 500
	// most contenders are read; only an outsider can have added more.
	most = 20_000
)

type seats struct {
	client   redis.UniversalClient
	layouts  []guard.Layout
	instance string
	gap, ttl time.Duration // GAP, and the lease's TTL
	beats    guard.Timing
	leads    func() []int
	readings *streak.Streak

	mu    sync.Mutex
	rank  []int // by partition: living contenders that rank before this one
	peers int
}

func newSeats(c janitor.Config, reg *Registry, leads func() []int) *seats {
	s := &seats{
		client: c.Control, instance: reg.Instance(), gap: reg.Timing().Gap(), beats: reg.Timing(),
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

// contend is janitor.Config.Contend: a lower rank comes a moment later, and so does a replica that
// already leads more than its share.
func (s *seats) contend(partition int) func() (time.Duration, bool) {
	partitions := len(s.rank)
	return func() (time.Duration, bool) {
		s.mu.Lock()
		rank, peers := s.rank[partition], s.peers
		s.mu.Unlock()
		if rank >= max(leastSeats, fullSeats/partitions) {
			return 0, false
		}
		if partitions == 1 {
			return 0, true
		}
		over := max(0, len(s.leads())-fair(partitions, peers))
		return time.Duration(min(rank+2*over, steps)) * min(step, s.ttl/30), true
	}
}

// keep gives up leases that others should have. Before, it waits until the dead are overdue, and
// reads once more.
func (s *seats) keep(ctx context.Context, resign func(ctx context.Context, which []int)) {
	at := rand.N(len(s.layouts))
	var read, over time.Time
	for wait.For(ctx, s.ttl/2+rand.N(s.ttl)) {
		s.mu.Lock()
		every := s.gap * time.Duration(max(1, s.peers/oftenMost))
		s.mu.Unlock()
		if len(s.excess()) == 0 {
			over = time.Time{}
		} else if over.IsZero() {
			over = time.Now()
		}
		give := !over.IsZero() && time.Since(over) > s.overdue()
		if give || time.Since(read) >= every {
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
		}
		if which := s.excess(); give && len(which) > 0 {
			resign(ctx, which)
			over = time.Time{}
		}
	}
}

// overdue is how long after its last beat a replica counts as living.
func (s *seats) overdue() time.Duration { return s.beats.Interval * 3 / 2 }

// living returns a partition's punctual contenders, and removes those without a heartbeat, which
// their next tick would add again.
func (s *seats) living(ctx context.Context, of guard.Layout) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.gap)
	defer cancel()
	var all []string
	ids := s.client.SScan(ctx, of.Contenders(), 0, "", page).Iterator()
	for len(all) < most && ids.Next(ctx) {
		all = append(all, ids.Val())
	}
	if err := ids.Err(); err != nil {
		return nil, err
	}
	slices.Sort(all) // a scan may repeat ids
	all = slices.Compact(all)
	var living []string
	for ids := range slices.Chunk(all, asked) {
		pipe := s.client.Pipeline()
		var beats []*redis.DurationCmd
		for _, id := range ids {
			beats = append(beats, pipe.PTTL(ctx, of.Heartbeat(id)))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		var gone []any
		for i, beat := range beats {
			switch left := beat.Val(); {
			case left < 0:
				gone = append(gone, ids[i])
			case left > s.beats.TTL-s.overdue():
				living = append(living, ids[i])
			}
		}
		if len(gone) > 0 {
			_ = s.client.SRem(ctx, of.Contenders(), gone...).Err() // otherwise the next reader does
		}
	}
	return living, nil
}

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

// before is rendezvous hashing (Thaler, Ravishankar).
func before(a, b string, partition int) bool {
	x, y := weight(a, partition), weight(b, partition)
	return x > y || x == y && a > b
}

func weight(id string, partition int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(partition >> 8), byte(partition)})
	_, _ = h.Write([]byte(id))
	// The last bytes of FNV hardly affect its upper bits, so mix them as in MurmurHash3.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func fair(partitions, peers int) int { return (partitions + peers - 1) / peers }

// excess returns the leases beyond this replica's share plus one for which most others rank before
// it.
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
