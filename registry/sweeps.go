package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/janitor"
)

// pipelined is how many commands one pipeline has at most: about 0.3 ms of Redis' time.
const pipelined = 500

// Sweeps are the registry's two kinds of cleaning, for the janitor. "owners", the quick way, sweeps
// an instance that fell silent through its reverse index, within a second or two. "registry", the
// full scan, asks once an interval whether it can find something. If so it reads every entry, and
// evicts what the index missed.
func (r *Registry) Sweeps() []janitor.Sweeper {
	s := &sweeps{evicted: r.metrics.evictedFrom, empty: map[string]time.Time{}}
	return []janitor.Sweeper{&quickWay{sweeps: s}, &fullScan{sweeps: s}}
}

// sweeps is what the two know of one another.
type sweeps struct {
	evicted func(owner string, n int)
	refused refusals

	// at is the owner whose index the quick way sweeps now; nil: none. The full scan leaves that owner
	// to it: both walk in much the same order, and half of their batches would find nothing left.
	at atomic.Pointer[string]

	mu sync.Mutex
	// Owners of whom a full scan found no entry, and since when they are silent. A term gives each its
	// own times, so what an earlier term found counts no more.
	empty map[string]time.Time
}

// scanned notes that a full scan has ended. When it began the owners in before were silent since
// these times, and it found no entry of them. An owner that came back meanwhile is silent since
// another time, and may have written some. silent are those of now.
func (s *sweeps) scanned(before, silent map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.empty, before)
	maps.DeleteFunc(s.empty, func(id string, since time.Time) bool { return !silent[id].Equal(since) })
}

// isEmpty reports whether a full scan found no entry of an owner, which is silent since before that
// scan began.
func (s *sweeps) isEmpty(owner string, silent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, empty := s.empty[owner]
	return empty && silent.Equal(since)
}

// expect asks for the size of hashes or sets, and so how much the pass will read. Where that is
// refused, or a key is of another type, it is not known.
func expect(
	ctx context.Context, p *janitor.Pass,
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
				p.AddTotal(int(cmd.(*redis.IntCmd).Val()))
			}
			return err
		})
		if err != nil && !together.Answered(err) {
			return err
		}
	}
	return nil
}
