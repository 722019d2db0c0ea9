package lease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/panics"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

//go:embed epoch.lua
var epochLua string

var epochScript = redis.NewScript(epochLua)

// Causes of the end of a term's context, for [errors.Is] on [context.Cause].
var (
	// ErrLost means that another process may hold the lease. It wraps the reason.
	ErrLost = errors.New("lease: lost")

	// ErrResigned means that the term was given up: by [Elector.Resign], or because lead returned.
	ErrResigned = errors.New("lease: resigned")
)

// Term is one unbroken holding of the lease. Its methods are safe for concurrent use, also after
// its end.
type Term struct {
	elector *Elector
	epoch   atomic.Uint64

	// The term ends when ctx does. end cancels it with a cause; only the first counts.
	ctx context.Context
	end context.CancelCauseFunc

	// Only Run's goroutine uses these two.
	lock *lock
	gone bool // the server answered that the lease no longer holds the token

	// Only Run's goroutine writes window and failed, holding mu; it reads them without.
	mu     sync.Mutex
	window trustWindow
	failed error       // of the last renewal, or nil
	alarm  *time.Timer // ends the term with the trust window, whatever Redis does
}

func newTerm(ctx context.Context, e *Elector, l *lock, w trustWindow, epoch uint64) *Term {
	t := &Term{elector: e, lock: l, window: w}
	t.epoch.Store(epoch)
	t.ctx, t.end = context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock() // the alarm may fire before it is stored
	t.alarm = time.AfterFunc(w.left(time.Now()), t.expire)
	return t
}

// Epoch returns the term's fencing number. [Term.Redraw] raises it.
func (t *Term) Epoch() uint64 { return t.epoch.Load() }

// Token returns the lease's value while this term holds it, `<instance>/<random>`.
func (t *Term) Token() string { return t.lock.token }

// Valid reports whether the term can still be relied on. It reads the clock, not Redis, and is
// false once the term's context has ended.
func (t *Term) Valid() bool { return t.Remaining() > 0 }

// Remaining returns how long the term can be relied on without a further renewal; 0 if it is over.
func (t *Term) Remaining() time.Duration {
	if t.ctx.Err() != nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.left(time.Now())
}

// Redraw draws a new epoch within the term, higher than its current one and than above, for a
// leader that has met a higher one. An above that is damage is ignored. If the lease is lost,
// Redraw ends the term and returns an error that wraps [ErrLost]. After any other error the epoch
// is unchanged and Redraw may be called again.
func (t *Term) Redraw(ctx context.Context, above uint64) (uint64, error) {
	within := min(t.elector.times.call(), t.Remaining())
	epoch, err := t.elector.draw(ctx, within, t.Token(), max(above, t.Epoch()))
	if errors.Is(err, errNotMine) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
		t.end(err)
	}
	if err != nil {
		return 0, err
	}
	t.epoch.Store(epoch)
	return epoch, nil
}

func (t *Term) lost() bool { return errors.Is(context.Cause(t.ctx), ErrLost) }

// expire is the alarm. Renewals move the window only: if it fires early it resets itself, so that a
// renewal and the alarm cannot miss each other.
func (t *Term) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.window.left(time.Now()); left > 0 && t.ctx.Err() == nil {
		t.alarm.Reset(left)
		return
	}
	t.end(t.expired())
}

func (t *Term) expired() error {
	since := time.Since(t.window.since).Round(time.Millisecond)
	if t.failed == nil {
		return fmt.Errorf("%w: not renewed for %s", ErrLost, since)
	}
	return fmt.Errorf("%w: not renewed for %s: %w", ErrLost, since, t.failed)
}

// renewed extends the window. If the reply came too late it ends the term and reports false.
func (t *Term) renewed(begun time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	longer, ok := t.window.renewed(begun, time.Now())
	if !ok {
		t.end(t.expired())
		return false
	}
	t.window, t.failed = longer, nil
	return true
}

func (t *Term) renewalFailed(err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, t.failed = t.failed == nil, err
	return first
}

func (t *Term) close() {
	t.end(ErrResigned)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alarm.Stop()
}

// draw returns an epoch higher than above and all that this elector has met, or errNotMine if the
// lease does not hold the token. After any other error an epoch may be drawn that nobody will use.
func (e *Elector) draw(
	ctx context.Context, within time.Duration, token string, above uint64,
) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	above = max(above, e.met(0))
	out, err := epochScript.Run(ctx, e.client, []string{e.key, e.epochKey, e.asideKey()}, token, above).StringSlice()
	if errors.Is(err, redis.Nil) {
		return 0, errNotMine
	}
	var epoch uint64
	if err == nil && len(out) != 2 {
		err = fmt.Errorf("%d values in the answer", len(out))
	}
	if err == nil {
		epoch, err = strconv.ParseUint(out[0], 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("lease: draw epoch: %w", err)
	}
	if damage := out[1]; damage != "" {
		e.log.Warn("epoch was damaged; drew a new one (check what wrote the key)",
			"key", e.epochKey, "was", damage, "epoch", epoch)
	}
	e.met(epoch)
	return epoch, nil
}

// met remembers and returns the highest epoch met, so that one lost by Redis is not drawn again.
// More than a year ahead is damage.
func (e *Elector) met(epoch uint64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= uint64(time.Now().AddDate(1, 0, 0).UnixMicro()) {
		e.highest = max(e.highest, epoch)
	}
	return e.highest
}

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
