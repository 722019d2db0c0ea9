package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// wakeJitter spreads the waiters that one release or one expiry wakes: the first
// to come wins, the others find it there and need not try.
const wakeJitter = 50 * time.Millisecond

// campaign tries until it has a term, and returns nil when ctx has ended first.
func (e *Elector) campaign(ctx context.Context) *Term {
	wait := time.Duration(0)
	for e.pause(ctx, wait) {
		var (
			term *Term
			err  error
		)
		term, wait, err = e.attempt(ctx)
		e.note(ctx, err)
		if term != nil {
			return term
		}
	}
	e.releasePending(ctx)
	return nil
}

// attempt looks at the lease and takes it if it is free. A look is one read for
// the server, where trying would be a write and a script; and it shows whether an
// earlier attempt has succeeded after all, and whether the holder will ever end.
// Without a term it says how long to wait for the next attempt.
func (e *Elector) attempt(ctx context.Context) (*Term, time.Duration, error) {
	wait := e.pace.nextLook()
	h, held, err := e.look(ctx)
	if err != nil {
		return nil, wait, err
	}

	var (
		l     *lock
		begun = time.Now()
	)
	switch {
	case !held:
		l, err = e.take(ctx)
	case e.acquirePending != nil && h.Token == e.acquirePending.token:
		l, err = e.adopt(ctx)
	default:
		// Until it can expire there is nothing to see: of a release a waiter hears. That is a look in
		// four fifths of a TTL, where many wait. Who does not hear, or sees a lease that may never end,
		// looks more often.
		if left := h.TTL + rand.N(wakeJitter); h.TTL >= 0 && (left < wait || e.subscribed.Load() && h.TTL <= e.pace.ttl()) {
			wait = left
		}
		return nil, wait, e.watch(ctx, h)
	}
	var term *Term
	if err == nil {
		term, err = e.begin(ctx, l, trust{since: begun, pace: e.pace})
	}
	if errors.Is(err, errNotMine) {
		err = nil // another was faster: an answer, not a trouble
	}
	return term, wait, err
}

// take acquires the lease with a fresh token. It is not interrupted when ctx
// ends: that would turn an attempt into one of unknown fate.
func (e *Elector) take(ctx context.Context) (*lock, error) {
	l := newLock(e.client, e.key, e.instance, e.pace)
	err := l.acquire(context.WithoutCancel(ctx), e.pace.call())
	if err == nil {
		e.acquirePending = nil
		return l, nil
	}
	if !errors.Is(err, errNotMine) {
		e.acquirePending = l
	}
	return nil, err
}

// adopt makes the lease ours that an attempt took whose reply was lost. Its age
// is not known, so it is extended, and trusted from then on.
func (e *Elector) adopt(ctx context.Context) (*lock, error) {
	l := e.acquirePending
	err := l.extend(context.WithoutCancel(ctx), e.pace.call())
	if err == nil || errors.Is(err, errNotMine) {
		e.acquirePending = nil
	}
	return l, err
}

// begin draws the epoch and makes the term, of which the lease has just been
// won. It tries until the first renewal is due; then, or when ctx has ended, the
// lease is given back.
func (e *Elector) begin(ctx context.Context, l *lock, tr trust) (*Term, error) {
	failpoint.Hit(failpoint.Acquiring)
	epoch, err := e.drawWithin(ctx, l.token, tr)
	for err != nil && !errors.Is(err, errNotMine) &&
		time.Now().Before(tr.renewAt()) && wait.For(ctx, e.pace.again()) {
		epoch, err = e.drawWithin(ctx, l.token, tr)
	}
	switch {
	case errors.Is(err, errNotMine):
		return nil, err // fenced: there is nothing to give back
	case err != nil:
		_ = e.unlock(ctx, l) // logs what goes wrong
		return nil, err
	}

	term := newTerm(ctx, e, l, tr, epoch)
	if !e.install(term) {
		term.close()
		_ = e.unlock(ctx, l)
		return nil, nil
	}
	e.stuckWatch = stuckWatch{}
	e.report(Acquired, term, nil)
	return term, nil
}

func (e *Elector) drawWithin(ctx context.Context, token string, tr trust) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, tr.budget(time.Now()))
	defer cancel()
	return e.draw(ctx, token, 0)
}

// watch looks at another's lease and caps it when it would not end.
func (e *Elector) watch(ctx context.Context, h Holder) error {
	if !e.stuckWatch.saw(h, time.Now(), e.pace) {
		return nil
	}
	e.stuckWatch = stuckWatch{}
	capped, err := e.limit(ctx, h.Token)
	if capped {
		e.log.Warn("lease did not end by itself and was capped",
			"holder", h.Instance, "token", h.Token, "expiry", h.TTL, "ttl", e.pace.ttl())
	}
	return err
}

// releasePending gives up an attempt of unknown fate when nobody will be there to find
// it, so that it does not hold the lease for a TTL in a dead name.
func (e *Elector) releasePending(ctx context.Context) {
	if e.acquirePending != nil {
		_ = e.unlock(ctx, e.acquirePending) // logs what goes wrong
		e.acquirePending = nil
	}
}

// note logs the campaign's troubles: the first of a row as a warning, the others
// for those who look closely, and the end of it.
func (e *Elector) note(ctx context.Context, err error) {
	switch {
	case err == nil && e.failing:
		e.log.Info("lease can be contended for again")
	case err == nil, ctx.Err() != nil:
	case e.failing:
		e.log.Debug("lease cannot be contended for", "error", err)
	default:
		e.log.Warn("lease cannot be contended for", "error", err)
	}
	e.failing = err != nil
}

// pause waits for the next attempt: d, or until somebody releases, but not
// before standing back is over. It reports false when ctx has ended.
func (e *Elector) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.released:
		if !wait.For(ctx, rand.N(wakeJitter)) {
			return false
		}
	case <-ctx.Done():
		return false
	}
	for left := e.standing(); left > 0; left = e.standing() {
		if !wait.For(ctx, left) {
			return false
		}
	}
	return ctx.Err() == nil
}
