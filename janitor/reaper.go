package janitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

var (
	// ErrFenced is the cause of the end of a term whose lease turned out to be another's, or after
	// which a newer one has begun. Pass.Delete returns it, and so should the sweep.
	ErrFenced = errors.New("janitor: fenced: the term is over")

	// ErrRefused is returned by Pass.Delete when the script itself failed, twice, and so deleted
	// nothing: a key of another type, a missing right, a mistake in a body. A sweep may leave that
	// batch's owner alone and go on with others.
	ErrRefused = errors.New("janitor: batch refused")
)

// A HeldError says that nothing may be deleted for now. Pass.CheckHeld and Pass.Delete return it,
// and so should the sweep: the pass is then held, not failed.
type HeldError struct {
	Reason string // a hold of the witness, or "paused"
}

func (e *HeldError) Error() string { return "janitor: held: " + e.Reason }

// reaper asks the guard for batches on behalf of all sweeps of a term: one at a time, numbered, and
// one whose fate is unknown again before any other. The pace lets one call at a time through, so n
// and pending change in one goroutine at a time.
type reaper struct {
	t       *termState
	n       uint64                      // of the last batch
	pending atomic.Pointer[guard.Batch] // asked for, and not answered yet; nil: none
}

// reap asks for one batch when the pace allows it, nothing is pending and nothing forbids it, and
// says what the server did.
func (r *reaper) reap(ctx context.Context, sweep string, b Batch) (a guard.Answer, err error) {
	var id guard.BatchID // zero: it was not asked for
	if r.t.j.cfg.StartSpan != nil {
		spanned, done := r.spanBatch(ctx, sweep, b)
		ctx = spanned
		defer func() { done(id, a, err) }()
	}
	took := func(held time.Duration) { r.t.batches.Took(len(b.Items), held) }
	err = r.t.call(ctx, took, func(ctx context.Context) (err error) {
		if err := r.askAgain(ctx); err != nil {
			return err
		}
		if err := r.t.mayDelete(ctx, b.Owner); err != nil {
			return err
		}
		r.n++
		id = guard.BatchID{Epoch: r.t.term.Epoch(), N: r.n}
		a, err = r.ask(ctx, guard.Batch{
			ID:    id,
			Token: r.t.term.Token(),
			Sweep: sweep,
			Owner: b.Owner,
			Body:  b.Body,
			Keys:  b.Keys,
			Items: b.Items,
		}, b.Deleted)
		return err
	})
	return a, err
}

// askPending asks again for a batch of unknown fate, if there is one.
func (r *reaper) askPending(ctx context.Context) error {
	if r.pending.Load() == nil {
		return nil
	}
	return r.t.call(ctx, nil, r.askAgain)
}

// askAgain is askPending within a call. After any answer the batch is pending no more.
func (r *reaper) askAgain(ctx context.Context) error {
	b := r.pending.Load()
	if b == nil {
		return nil
	}
	if err := r.t.mayDelete(ctx, b.Owner); err != nil {
		return err
	}
	if _, err := r.ask(ctx, *b, nil); !errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// ask asks for a batch, and leaves it pending if nothing is known of it afterwards. It is noted
// before it is sent for the first time, and only then: asked for again, it may be counted already.
func (r *reaper) ask(ctx context.Context, b guard.Batch, deleted func(guard.Answer)) (guard.Answer, error) {
	// A process that was just woken from a pause knows by its clock, and does not even ask.
	if !r.t.term.Valid() {
		return guard.Answer{Verdict: guard.Fenced}, ErrFenced
	}
	unsettled := r.t.j.unsettled
	if r.pending.Load() == nil {
		unsettled.open(b, deleted)
		r.pending.Store(&b)
	}
	a, err := r.send(ctx, b)
	if refusedScript(err) {
		// If it failed behind its record, asking again answers DONE; else it has deleted nothing.
		a, err = r.send(ctx, b)
	}
	switch {
	case err != nil && !refusedScript(err):
		unsettled.unanswered(b)
		return a, err
	case err == nil && a.Verdict == guard.Done:
		failpoint.Hit(failpoint.AfterReply)
		unsettled.recorded(b, a)
	default:
		unsettled.refused(b)
	}
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

// send waits for the reply also when ctx ends meanwhile, as long as the term can be trusted: it
// takes a millisecond, and a reply not waited for is an unknown fate.
func (r *reaper) send(ctx context.Context, b guard.Batch) (guard.Answer, error) {
	within := min(callTimeout, r.t.term.Remaining())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return r.t.j.guard.Do(ctx, b)
}

// refusedScript tells that a script failed inside, or that this user may not run it: a right on one
// of its keys is missing. It must not hold up the batches of other sweeps.
func refusedScript(err error) bool {
	return failedInside(err) || strings.HasPrefix(serverError(err), "NOPERM ")
}

// failedInside tells an error that the script raised from one that kept it from running or its
// reply from arriving. The server says ERR or WRONGTYPE for the former only.
func failedInside(err error) bool {
	text := serverError(err)
	return strings.HasPrefix(text, "WRONGTYPE ") || strings.HasPrefix(text, "ERR ")
}

// serverError is what the server answered in place of a result; "" if err is of another kind.
func serverError(err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return reply.Error()
	}
	return ""
}
