package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// releaseTries bounds the release; after it the TTL releases the lease.
	releaseTries = 3
	// stuckAfter is when work that has not returned is reported. Calls to a Redis that stands still
	// end by their own deadlines, well before.
	stuckAfter = time.Minute
)

// work is one call of the led function.
type work struct {
	done        chan struct{} // closed when it is back
	err         error
	interrupted bool // its context had ended when it came back
	panics      panics.Catcher
}

// start calls lead for the term in a goroutine.
func start(t *Term, lead func(context.Context, *Term) error) *work {
	w := &work{
		done: make(chan struct{}),
		err:  errors.New("lease: the led function ended its goroutine (runtime.Goexit)"),
	}
	go func() {
		defer close(w.done)
		w.panics.Try(func() {
			err := lead(t.ctx, t)
			w.err, w.interrupted = err, t.ctx.Err() != nil
		})
	}()
	return w
}

// keep renews the lease until the work is done, stop is closed, or there is no lease left to renew.
func (e *Elector) keep(t *Term, done, stop <-chan struct{}) {
	next := time.NewTimer(time.Until(t.window.renewAt()))
	defer next.Stop()
	for {
		select {
		case <-done:
			return
		case <-stop:
			return
		case <-next.C:
		}
		if !e.renew(t) {
			return
		}
		// After a failure the renewal is overdue, and tried again soon.
		next.Reset(max(time.Until(t.window.renewAt()), e.times.again()))
	}
}

// renew renews once. A failure of unknown fate does not end the term: it is tried again until the
// trust window ends. It reports false when the term is over: the server says so, or the window has
// ended.
func (e *Elector) renew(t *Term) bool {
	begun := time.Now()
	budget := t.window.budget(begun)
	if budget == 0 {
		return t.renewed(begun) // false: it ends the term
	}
	failpoint.Hit(failpoint.Renewing)
	// Not interrupted when the term's context ends: the release that follows must not meet a renewal
	// under way.
	err := t.lock.extend(context.WithoutCancel(t.ctx), budget)
	switch {
	case err == nil:
		return t.renewed(begun)
	case errors.Is(err, errNotMine):
		t.gone = true
		t.end(fmt.Errorf("%w: %w", ErrLost, err))
		return false
	}
	level := slog.LevelDebug
	if t.renewalFailed(err) { // the first of a row is enough
		level = slog.LevelInfo
	}
	e.log.Log(t.ctx, level, "lease renewal failed, trying again",
		"token", t.Token(), "left", t.window.left(time.Now()), "error", err)
	return true
}

// leave ends the term: cancel, join, release, in this order. Releasing first would let a successor
// begin while the work still goes on. It returns what Run returns for the work.
func (e *Elector) leave(ctx context.Context, t *Term, w *work) error {
	t.end(ErrResigned) // counts if nothing else has ended it: the work came back
	defer t.close()
	if t.lost() {
		e.report(Lost, t, context.Cause(t.ctx))
		if t.failed != nil {
			e.attempts.Begun() // the line above says why: the campaign goes on with the same failure
		}
	}
	e.join(t, w)
	e.release(ctx, t)
	w.panics.Repanic()
	if w.err == nil || !w.interrupted {
		return w.err
	}
	if !errors.Is(w.err, context.Canceled) && !errors.Is(w.err, context.Cause(t.ctx)) {
		e.log.Info("led function ended with an error after its term", "token", t.Token(), "error", w.err)
	}
	return nil
}

// join waits for the work. A term that was not lost keeps its lease meanwhile, for a TTL at most:
// work that does not end must not keep everybody else from leading.
func (e *Elector) join(t *Term, w *work) {
	left := time.Now()
	if !t.lost() {
		limit, cancel := context.WithTimeout(context.Background(), e.times.ttl())
		e.keep(t, w.done, limit.Done())
		if limit.Err() != nil {
			e.log.Info("led function outlives its term, the lease is left to lapse", "token", t.Token())
		}
		cancel()
	}
	stuck := time.NewTimer(time.Until(left.Add(max(stuckAfter, e.times.ttl()))))
	defer stuck.Stop()
	select {
	case <-w.done:
		return
	case <-stuck.C:
		e.log.Error(
			"led function does not return after its term, this process leads no more until it does: restart it",
			"token", t.Token(), "after", time.Since(left).Round(time.Second))
	}
	<-w.done
}

// release releases the lease and wakes the waiters.
func (e *Elector) release(ctx context.Context, t *Term) {
	if !t.gone {
		t.gone = errors.Is(e.unlock(ctx, t.lock), errNotMine)
	}
	if t.lost() {
		// Reported when it happened. The release was worth a try all the same: a server that only stood
		// still may yet hold the lease for this term.
		return
	}
	e.coolDownAgain()
	if t.gone {
		e.report(Lost, t, fmt.Errorf("%w while leaving: %w", ErrLost, errNotMine))
		return
	}
	e.report(Released, t, context.Cause(t.ctx))
}

// unlock releases the lease with a few bounded tries, whatever has become of ctx, and wakes the
// waiters. It returns nil, errNotMine, or the last error, which it logs; then the TTL releases it.
func (e *Elector) unlock(ctx context.Context, l *lock) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for try := range releaseTries {
		if try > 0 {
			wait.For(ctx, e.times.again())
		}
		err = l.release(ctx, e.times.part())
		if try > 0 && errors.Is(err, errNotMine) {
			err = nil // an earlier try did it, of which the reply was lost
		}
		if err == nil {
			e.announce(ctx)
		}
		if err == nil || errors.Is(err, errNotMine) {
			return err
		}
	}
	e.log.Info("lease may be left to lapse", "token", l.token, "error", err)
	return err
}
