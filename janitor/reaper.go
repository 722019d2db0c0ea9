package janitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/pacing"
)

var (
	// ErrFenced is the cause of the end of a term whose lease turned out to be another's, or after
	// which a newer one has begun. Pass.Delete returns it, and so should the sweep.
	ErrFenced = errors.New("janitor: fenced: the term is over")

	// ErrRefused is returned by Pass.Delete when the script itself failed, twice, and so deleted
	// nothing: a key of another type, a mistake in a body. A sweep may leave that batch's owner alone
	// and go on with others.
	ErrRefused = errors.New("janitor: batch refused")
)

// A HeldError says that nothing may be deleted for now. Pass.CheckHeld and Pass.Delete return it,
// and so should the sweep: the pass is then held, not failed.
type HeldError struct {
	Reason string // a hold of the witness, or "paused"
}

func (e *HeldError) Error() string { return "janitor: held: " + e.Reason }

// reaper asks the guard for batches on behalf of all sweeps of a term: one at a time, numbered, and
// one whose fate is unknown again before any other.
type reaper struct {
	guard     *guard.Guard
	term      term
	unsettled *pendingBatches
	permit    func(ctx context.Context, owner string) error // paused, breaker: asked before each batch
	pace      *pacing.Pace
	end       context.CancelCauseFunc // ends the term

	turn    chan struct{} // a lock that a context can end the wait for
	n       uint64        // of the last batch; held by turn
	pending *guard.Batch
}

func newReaper(g *guard.Guard, term term, l *pendingBatches, p *pacing.Pace, end context.CancelCauseFunc) *reaper {
	return &reaper{guard: g, term: term, unsettled: l, pace: p, end: end, turn: make(chan struct{}, 1)}
}

// reap asks for one batch when the pace allows it, and says what the server did, and for how long
// that held it.
func (r *reaper) reap(ctx context.Context, sweep string, b Batch) (a guard.Answer, held time.Duration, err error) {
	if err := r.lock(ctx); err != nil {
		return guard.Answer{}, 0, err
	}
	defer r.unlock()
	leave, err := r.pace.Enter(ctx)
	if err != nil {
		return guard.Answer{}, 0, err
	}
	defer func() { held = leave() }()
	a, err = r.next(ctx, sweep, b)
	return a, 0, err
}

// next numbers a batch and asks for it, once nothing is pending and nothing forbids it.
func (r *reaper) next(ctx context.Context, sweep string, b Batch) (guard.Answer, error) {
	if err := r.retry(ctx); err != nil {
		return guard.Answer{}, err
	}
	if err := r.permit(ctx, b.Owner); err != nil {
		return guard.Answer{}, err
	}
	r.n++
	return r.ask(ctx, guard.Batch{
		ID:    guard.BatchID{Epoch: r.term.Epoch(), N: r.n},
		Token: r.term.Token(),
		Sweep: sweep,
		Owner: b.Owner,
		Body:  b.Body,
		Keys:  b.Keys,
		Items: b.Items,
	}, b.Deleted, false)
}

// settle asks again for a batch of unknown fate, if there is one.
func (r *reaper) settle(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	return r.retry(ctx)
}

// retry is settle for who has the turn. Whatever the guard says but an error, the batch is
// pending no more.
func (r *reaper) retry(ctx context.Context) error {
	if r.pending == nil {
		return nil
	}
	b := *r.pending
	if err := r.permit(ctx, b.Owner); err != nil {
		return err
	}
	if _, err := r.ask(ctx, b, nil, true); err != nil && !errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// ask asks for a batch, and leaves it pending if nothing is known of it afterwards. It is noted
// before it is sent, and only then: asked again, it may be closed already,
// counted.
func (r *reaper) ask(ctx context.Context, b guard.Batch, deleted func(n int), again bool) (guard.Answer, error) {
	// A process that was just woken from a pause knows by its clock, and does not even ask.
	if !r.term.Valid() {
		return guard.Answer{Verdict: guard.Fenced}, ErrFenced
	}
	if !again {
		r.unsettled.open(b, deleted)
	}
	a, err := r.send(ctx, b)
	if failedInside(err) {
		// If it failed behind its record, asking again answers DONE; else it has deleted nothing.
		a, err = r.send(ctx, b)
	}
	r.pending = nil
	switch {
	case err != nil && !failedInside(err):
		r.pending = &b
		return a, err
	case err == nil && a.Verdict == guard.Done:
		failpoint.Hit(failpoint.AfterReply)
		r.unsettled.recorded(b, a)
		return a, nil
	}
	r.unsettled.refused(b)
	switch {
	case err != nil:
		return a, fmt.Errorf("%w: %w", ErrRefused, err)
	case a.Verdict == guard.Fenced:
		r.end(ErrFenced)
		return a, ErrFenced
	}
	return a, nil
}

// send waits for the reply also when ctx ends meanwhile, as long as the term can be trusted: it
// takes a millisecond, and a reply not waited for is an unknown fate.
func (r *reaper) send(ctx context.Context, b guard.Batch) (guard.Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(callTimeout, r.term.Remaining()))
	defer cancel()
	return r.guard.Do(ctx, b)
}

// lock waits for the turn, or for ctx' end.
func (r *reaper) lock(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reaper) unlock() { <-r.turn }

// failedInside tells an error that the script raised from one that kept it from running or its
// reply from arriving. The server says ERR or WRONGTYPE for the former only.
func failedInside(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	return strings.HasPrefix(reply.Error(), "WRONGTYPE ") || strings.HasPrefix(reply.Error(), "ERR ")
}
