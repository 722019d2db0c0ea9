package janitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/together"
)

var (
	// ErrFenced is the cause of the end of a term that has lost its lease or was followed by a
	// newer one. Pass.Delete returns it, and so should the sweep.
	ErrFenced = errors.New("janitor: fenced: the term is over")

	// ErrRefused is returned by Pass.Delete if the script itself failed, twice, and so deleted
	// nothing: a key of another type, a missing right, a bug in a body. A sweep may leave that
	// batch's owner alone and continue with others.
	ErrRefused = errors.New("janitor: batch refused")
)

// A HeldError means that nothing may be deleted for now. Pass.CheckHeld and Pass.Delete return it,
// and so should the sweep.
type HeldError struct {
	Reason string // a hold of the witness, "paused", or one of the sweep's own
	Detail string // the cause as the sweep knows it, for Report.Error; may be empty
}

func (e *HeldError) Error() string { return "janitor: held: " + e.Reason }

// reaper sends the batches of all sweeps of a term to the guard: numbered, one at a time, and one
// of unknown fate again before any other. The pace admits one call at a time.
type reaper struct {
	t       *termState
	n       uint64               // of the last batch
	pending atomic.Pointer[sent] // not answered yet
}

func (r *reaper) reap(ctx context.Context, sweep string, b Batch) (a guard.Answer, err error) {
	ctx, done := r.t.j.spanBatch(ctx, sweep, b)
	var id guard.BatchID // zero: it was not sent
	defer func() { done(id, a, err) }()
	took := func(held time.Duration) { r.t.batches.Took(len(b.Items), held) }
	err = r.t.call(ctx, took, func(ctx context.Context) (err error) {
		if err := r.askAgain(ctx); err != nil {
			return err
		}
		if err := r.t.checkPaused(ctx, pauseFresh); err != nil {
			return err
		}
		if !r.t.term.Valid() {
			a.Verdict = guard.Fenced
			return ErrFenced
		}
		evidence, kept, err := r.t.owners.evidence(ctx, b.Owner)
		if err != nil || kept.Verdict != "" {
			a = kept
			return err
		}
		r.n++
		id = guard.BatchID{Epoch: r.t.term.Epoch(), N: r.n}
		a, err = r.ask(ctx, &sent{deleted: b.Deleted, Batch: guard.Batch{
			ID:       id,
			Token:    r.t.term.Token(),
			Sweep:    sweep,
			Owner:    b.Owner,
			Body:     b.Body,
			Keys:     b.Keys,
			Items:    b.Items,
			Evidence: evidence,
		}})
		return err
	})
	return a, err
}

func (r *reaper) askPending(ctx context.Context) error {
	if r.pending.Load() == nil {
		return nil
	}
	return r.t.call(ctx, nil, r.askAgain)
}

// askAgain sends the very same batch. Any answer settles it: if it has not run, its old evidence
// keeps the owner, and the sweep comes to it anew.
func (r *reaper) askAgain(ctx context.Context) error {
	b := r.pending.Load()
	if b == nil {
		return nil
	}
	if err := r.t.checkPaused(ctx, pauseFresh); err != nil {
		return err
	}
	if _, err := r.ask(ctx, b); !errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// ask leaves a batch pending if its fate is unknown.
func (r *reaper) ask(ctx context.Context, b *sent) (guard.Answer, error) {
	// A process that has just woken from a pause need not even ask.
	if !r.t.term.Valid() {
		return guard.Answer{Verdict: guard.Fenced}, ErrFenced
	}
	a, err := r.send(ctx, b.Batch)
	if refusedScript(err) {
		// If it failed after its record, the second try answers DONE; otherwise it deleted nothing.
		a, err = r.send(ctx, b.Batch)
	}
	if err != nil && !refusedScript(err) {
		r.t.checkFormer(err)
		r.pending.Store(b)
		r.t.j.ledger.lose(b)
		return a, err
	}
	if err == nil && a.Verdict == guard.Done {
		failpoint.Hit(failpoint.AfterReply)
	}
	r.t.j.ledger.answered(b, a)
	r.pending.Store(nil)
	switch {
	case err != nil:
		return a, fmt.Errorf("%w: %w", ErrRefused, err)
	case a.Verdict == guard.Fenced:
		r.t.end(ErrFenced)
		return a, ErrFenced
	}
	return a, nil
}

// send waits for the reply even if ctx ends, while the term can be trusted: it takes a millisecond,
// and without the reply the fate would be unknown.
func (r *reaper) send(ctx context.Context, b guard.Batch) (guard.Answer, error) {
	within := min(callTimeout, r.t.term.Remaining())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return r.t.j.guard.Do(ctx, b)
}

// refusedScript reports that a script failed inside, or that this user lacks a right on one of its
// keys. That must not stop other sweeps.
func refusedScript(err error) bool {
	return failedInside(err) || strings.HasPrefix(serverError(err), "NOPERM ")
}

// failedInside reports that the script itself raised err. Errors that kept it from running, or its
// reply from arriving, never start with ERR or WRONGTYPE.
func failedInside(err error) bool {
	text := serverError(err)
	return strings.HasPrefix(text, "WRONGTYPE ") || strings.HasPrefix(text, "ERR ")
}

// serverError returns "" unless err is a server's error reply.
func serverError(err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return reply.Error()
	}
	return ""
}

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
