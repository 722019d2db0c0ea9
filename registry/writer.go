package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const callTimeout = 3 * time.Second

// write is the only goroutine that writes entries, a batch at a time.
func (r *Registry) write(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		if r.boot == "" || r.table.queued() == 0 {
			r.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-r.table.wake: // also sent by drawBoot
			}
			continue
		}
		b := r.table.next(time.Now())
		r.mu.Unlock()
		r.metrics.failures.WithLabelValues("register").Add(float64(b.late))

		err := errors.Join(
			r.run(ctx, registerScript, "register", b.register),
			r.run(ctx, releaseScript, "release", b.release),
			r.run(ctx, healScript, "heal", b.heal),
			r.run(ctx, healScript, "heal", b.outlive),
			r.overlap(b.check, func(ops []op) error { return r.check(ctx, ops) }),
		)

		r.mu.Lock()
		r.table.ended(err)
		r.former(err)
		r.changed.Broadcast()
		r.mu.Unlock()
		r.tellReconciled()
		if err != nil {
			r.endIfReplaced(err)
			wait.For(ctx, r.retryDelay())
		}
	}
	return nil
}

func (r *Registry) retryDelay() time.Duration {
	return min(r.cfg.HeartbeatInterval/10, time.Second)
}

// overlap calls one for batchSize ops at a time. The calls overlap, and leave half of Client's
// connections to others.
func (r *Registry) overlap(ops []op, one func([]op) error) error {
	calls := pool.New().WithErrors().WithMaxGoroutines(max(1, min(overlapped, connections(r.cfg.Client)/2)))
	for some := range slices.Chunk(ops, batchSize) {
		calls.Go(func() error { return one(some) })
	}
	return calls.Wait()
}

func connections(c redis.UniversalClient) int {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 0
}

func (r *Registry) run(ctx context.Context, s *redis.Script, name string, ops []op) error {
	alone := len(ops) <= batchSize
	return r.overlap(ops, func(ops []op) error { return r.runOne(ctx, s, name, ops, alone) })
}

func (r *Registry) runOne(ctx context.Context, s *redis.Script, name string, ops []op, alone bool) error {
	r.mu.Lock()
	ops = r.table.wanted(ops)
	r.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	ids := make([]any, len(ops), len(ops)+1)
	for i, o := range ops {
		ids[i] = o.h.id
	}
	over := ops[0].dead != ""
	keys, args := r.owning(r.Newest(), ids...)
	if over {
		keys, args = append(keys, r.heartbeats(ops)...), append(args, r.Timing().Gap().Milliseconds())
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := r.owned(time.Now(), s.Run(call, r.cfg.Client, keys, args...))

	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if over && err == nil && got.count < 0 {
		r.table.notYet(ops, now)
		r.read(got, now)
		return nil
	}
	r.table.wrote(ops, got, err, now)
	if err != nil {
		n := 1
		if name == "register" {
			n = len(ops)
		}
		r.fail(name, err, n)
		return err
	}
	if name == "heal" {
		r.healed += uint64(got.count)
		r.metrics.healed.Add(float64(got.count))
		r.restoring.owed = r.restoring.owed || got.count > 0
		r.recovered("register") // healing retries failed registrations
	}
	r.recovered(name)
	if !alone { // the others have changed the index, too
		got.size = r.table.indexed
	}
	r.read(got, now)
	return nil
}

func (r *Registry) check(ctx context.Context, ops []op) error {
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.h.id
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := r.entries(call, ids)
	if err != nil {
		r.noteFailed(err)
	}
	failpoint.Hit(failpoint.Comparing)

	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.table.checked(ops, found, err, now)
	if err != nil {
		r.fail("check", err, 1)
	} else {
		r.recovered("check")
	}
	return err
}

func (r *Registry) endIfReplaced(err error) {
	if errors.Is(err, ErrReplaced) {
		r.end(ErrReplaced)
	}
}
