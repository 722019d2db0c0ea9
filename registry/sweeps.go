package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
)

// pipelined is how many commands one pipeline has at most: about 0.3 ms of Redis' time.
const pipelined = 500

// Sweeps are the registry's two kinds of cleaning, for the janitor. "owners", the quick way, sweeps
// an instance that fell silent through its reverse index, within a second or two. "registry", the
// full scan, reads every entry once an interval, and evicts what the index missed.
func (r *Registry) Sweeps() []janitor.Sweeper {
	s := &sweeps{
		evicted:  r.metrics.evictedFrom,
		sweeping: map[string]bool{}, empty: map[string]time.Time{},
	}
	return []janitor.Sweeper{&quickWay{sweeps: s}, &fullScan{sweeps: s}}
}

// sweeps is what the two know of one another.
type sweeps struct {
	evicted func(owner string, n int)

	mu       sync.Mutex
	sweeping map[string]bool // owners that the quick way is at; the full scan leaves them to it
	// Owners of whom a full scan found no entry, and since when they are silent. A term gives each its
	// own times, so what an earlier term found counts no more.
	empty map[string]time.Time
}

// takeUp notes that the quick way is at an owner, until done is called. Both ways walk in much the
// same order: side by side, half of the batches would find nothing left.
func (s *sweeps) takeUp(owner string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeping[owner] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sweeping, owner)
	}
}

// busy tells whether the quick way is at any owner now.
func (s *sweeps) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sweeping) > 0
}

// takenUp tells whether the quick way is at an owner now.
func (s *sweeps) takenUp(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweeping[owner]
}

// scanned notes that a full scan has ended: at its beginning the owners in before were silent since
// then, and it met no entry of them. One that came back meanwhile is silent since another time, and
// may have written some. silent are those of now.
func (s *sweeps) scanned(before, silent map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.empty, before)
	maps.DeleteFunc(s.empty, func(id string, since time.Time) bool { return !silent[id].Equal(since) })
}

// isEmpty tells whether a full scan found no entry of an owner, and it is silent since then.
func (s *sweeps) isEmpty(owner string, silent map[string]time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, empty := s.empty[owner]
	return empty && silent[owner].Equal(since)
}

// expect asks how large hashes or sets are, and so how much the pass will look at. Where that is
// refused, or a key is of another type, it is not known.
func expect(ctx context.Context, p *janitor.Pass, size func(redis.Pipeliner, context.Context, string) *redis.IntCmd, keys ...string) error {
	for slice := range slices.Chunk(keys, pipelined) {
		err := p.Call(ctx, func(ctx context.Context) error {
			pipe := p.Client().Pipeline()
			for _, key := range slice {
				size(pipe, ctx, key)
			}
			cmds, err := pipe.Exec(ctx)
			for _, cmd := range cmds {
				if n, ok := cmd.(*redis.IntCmd); ok && n.Err() == nil {
					p.AddTotal(int(n.Val()))
				}
			}
			return err
		})
		if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
			return err
		}
	}
	return nil
}
