package janitor

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// pipelined is the most commands per pipeline: about 0.3 ms of Redis' time.
const pipelined = 500

// newEntries returns the registry's two sweeps: the quick way through the indexes of silent owners,
// and the full scan. They report to evicted what they evict.
func newEntries(evicted func(owner string, n int)) []Sweeper {
	s := &entries{evicted: evicted, empty: map[string]time.Time{}, refused: refusals{of: map[string]refusal{}}}
	return []Sweeper{&quickWay{entries: s}, &fullScan{entries: s}}
}

// entries is what both share.
type entries struct {
	evicted func(owner string, n int)
	refused refusals

	// at is the owner whose index the quick way is sweeping, or nil. The full scan leaves it alone:
	// half of the batches would find nothing.
	at atomic.Pointer[string]

	mu sync.Mutex
	// Owners whose entries no full scan of this term found, and since when they are silent.
	empty map[string]time.Time
}

func (*entries) judgesOwners() {}

// scanned records the end of a full scan that found no entry of the owners in before, silent since
// these times. An owner that came back meanwhile has another time in silent.
func (s *entries) scanned(before, silent map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.empty, before)
	maps.DeleteFunc(s.empty, func(id string, since time.Time) bool { return !silent[id].Equal(since) })
}

func (s *entries) isEmpty(owner string, silent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, empty := s.empty[owner]
	return empty && silent.Equal(since)
}

// expect adds the sizes of hashes or sets to the pass' total. A refused or mistyped key counts as
// unknown.
func expect(
	ctx context.Context, p *Pass,
	size func(redis.Pipeliner, context.Context, string) *redis.IntCmd, keys ...string,
) error {
	for slice := range slices.Chunk(keys, pipelined) {
		err := p.Call(ctx, func(ctx context.Context) error {
			cmds, err := p.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, key := range slice {
					size(pipe, ctx, key)
				}
				return nil
			})
			for _, cmd := range cmds {
				p.addTotal(int(cmd.(*redis.IntCmd).Val()))
			}
			return err
		})
		if err != nil && !together.Answered(err) {
			return err
		}
	}
	return nil
}
