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
	releaseTries = 3
	// stuckAfter is when work that has not returned is logged as an error. Calls to a hanging Redis
	// end by their own deadlines, well before.
	stuckAfter = time.Minute
)

type work struct {
	done        chan struct{} // closed when lead returns
	err         error
	interrupted bool // its context had ended by then
	panics      panics.Catcher
}

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
		// After a failure the renewal is overdue; retry soon.
		next.Reset(max(time.Until(t.window.renewAt()), e.times.again()))
	}
}

// renew reports false once the term is over. A failure with unknown outcome does not end it: the
// renewal is retried until the trust window ends.
func (e *Elector) renew(t *Term) bool {
	begun := time.Now()
	budget := t.window.budget(begun)
	if budget == 0 {
		return t.renewed(begun) // false: it ends the term
	}
	failpoint.Hit(failpoint.Renewing)
	// The end of the term's context does not interrupt it: the release must not overtake a renewal.
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
	if t.renewalFailed(err) { // only the first of a row
		level = slog.LevelInfo
	}
	e.log.Log(t.ctx, level, "lease renewal failed; retrying",
		"token", t.Token(), "left", t.window.left(time.Now()), "error", err)
	return true
}

// leave cancels, joins, releases, in this order: releasing first would let a successor begin while
// the work goes on.
func (e *Elector) leave(ctx context.Context, t *Term, w *work) error {
	t.end(ErrResigned) // only counts if nothing else has ended it: lead returned
	defer t.close()
	if t.lost() {
		e.report(Lost, t, context.Cause(t.ctx))
		if t.failed != nil {
			e.attempts.Begun() // already logged above; the campaign starts with the same failure
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

// join waits for the work. Unless the term was lost it keeps the lease, for at most a TTL: endless
// work must not keep everybody else from leading.
func (e *Elector) join(t *Term, w *work) {
	left := time.Now()
	if !t.lost() {
		limit, cancel := context.WithTimeout(context.Background(), e.times.ttl())
		e.keep(t, w.done, limit.Done())
		if limit.Err() != nil {
			e.log.Info("led function outlives its term; letting the lease expire", "token", t.Token())
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
			"led function has not returned after its term; this process cannot lead until it does (restart it)",
			"token", t.Token(), "after", time.Since(left).Round(time.Second))
	}
	<-w.done
}

func (e *Elector) release(ctx context.Context, t *Term) {
	if !t.gone {
		t.gone = errors.Is(e.unlock(ctx, t.lock), errNotMine)
	}
	if t.lost() {
		// Already reported. The release was worth a try: a server that only paused may hold the
		// lease for this term.
		return
	}
	e.coolDownAgain()
	if t.gone {
		e.report(Lost, t, fmt.Errorf("%w while leaving: %w", ErrLost, errNotMine))
		return
	}
	e.report(Released, t, context.Cause(t.ctx))
	if ctx.Err() == nil {
		e.redial(ctx)
	}
}

// redial closes the client's idle connections: to go-redis, a server that answers READONLY was
// demoted. A term may be given up because it was led on a former primary, which still takes writes;
// the next attempt must dial by name again.
func (e *Elector) redial(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.times.call())
	defer cancel()
	for range controlPool {
		_ = e.client.Eval(ctx, "return redis.error_reply('READONLY dial anew')", []string{e.key}).Err()
	}
}

// unlock releases the lease in a few bounded tries, even if ctx has ended, and wakes the waiters.
// It logs the last error.
func (e *Elector) unlock(ctx context.Context, l *lock) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for try := range releaseTries {
		if try > 0 {
			wait.For(ctx, e.times.again())
		}
		err = l.release(ctx, e.times.part())
		if try > 0 && errors.Is(err, errNotMine) {
			err = nil // an earlier try worked, but its reply was lost
		}
		if err == nil {
			e.announce(ctx)
		}
		if err == nil || errors.Is(err, errNotMine) {
			return err
		}
	}
	e.log.Info("could not release the lease; it will expire", "token", l.token, "error", err)
	return err
}
