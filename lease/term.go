package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Causes of the end of a term's context, to be told apart by [errors.Is] on
// [context.Cause].
var (
	// ErrLost says that the lease is not this term's any more, or can no longer
	// be known to be. It wraps the reason.
	ErrLost = errors.New("lease: lost")

	// ErrResigned says that the term was given up: by [Elector.Resign], or
	// because the led function returned.
	ErrResigned = errors.New("lease: resigned")
)

// Term is one unbroken holding of the lease. Its methods may be used from any
// goroutine, also after it has ended.
type Term struct {
	elector *Elector
	token   string
	epoch   atomic.Uint64

	// Given to the led function. It is kept because the term's end and the
	// context's are one thing: whoever ends the term cancels it with the cause.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Touched by Run's goroutine only.
	lock *lock
	gone bool // the server said that the lease does not hold the token any more

	mu      sync.Mutex
	trust   trust
	trouble error       // why the last renewal failed, nil after one that did not
	alarm   *time.Timer // ends the term when the trust is over, whatever Redis does
}

func newTerm(ctx context.Context, e *Elector, l *lock, tr trust, epoch uint64) *Term {
	t := &Term{elector: e, token: l.token, lock: l, trust: tr}
	t.epoch.Store(epoch)
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock() // the alarm may ring before it is stored
	t.alarm = time.AfterFunc(tr.left(time.Now()), t.expire)
	return t
}

// Epoch returns the term's fencing number, higher than that of every earlier
// term. [Term.Redraw] raises it.
func (t *Term) Epoch() uint64 { return t.epoch.Load() }

// Token returns the lease's value while this term holds it, `<instance>/<random>`.
func (t *Term) Token() string { return t.token }

// Valid tells whether the term can still be relied on. It asks the clock, not
// Redis, and is false from the moment that the term's context has ended.
func (t *Term) Valid() bool { return t.Remaining() > 0 }

// Remaining returns how long the term can be relied on if no renewal succeeds
// from now on; 0 if it is over.
func (t *Term) Remaining() time.Duration {
	if t.ctx.Err() != nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trust.left(time.Now())
}

// Redraw draws another epoch within the same term, higher than the present one
// and than above: for a leader who finds that somebody has met a higher epoch
// than its own. It returns an error that wraps [ErrLost], and ends the term, if
// the lease is not this term's any more; after any other error the epoch is
// unchanged and it may be called again.
func (t *Term) Redraw(ctx context.Context, above uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, min(t.elector.pace.call(), t.Remaining()))
	defer cancel()
	epoch, err := t.elector.draw(ctx, t.token, max(above, t.Epoch()))
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

// end cancels the term's context with its cause. Only the first cause counts.
func (t *Term) end(cause error) { t.cancel(cause) }

// lost tells whether the term ended because the lease was lost.
func (t *Term) lost() bool { return errors.Is(context.Cause(t.ctx), ErrLost) }

// expire is the alarm. Renewals do not touch it: when it rings early it looks at
// the trust that has grown in the meantime and sets itself again, so that a
// renewal and the alarm cannot miss each other.
func (t *Term) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.trust.left(time.Now()); left > 0 && t.ctx.Err() == nil {
		t.alarm.Reset(left)
		return
	}
	t.end(t.expired())
}

// expired is the cause of a term that no renewal saved; mu is held.
func (t *Term) expired() error {
	since := time.Since(t.trust.since).Round(time.Millisecond)
	if t.trouble == nil {
		return fmt.Errorf("%w: not renewed for %s", ErrLost, since)
	}
	return fmt.Errorf("%w: not renewed for %s: %w", ErrLost, since, t.trouble)
}

// renewed takes note of a renewal that began at begun and of which the reply has
// just come. It ends the term, and reports false, when that is too late.
func (t *Term) renewed(begun time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	longer, ok := t.trust.renewed(begun, time.Now())
	if !ok {
		t.end(t.expired())
		return false
	}
	t.trust, t.trouble = longer, nil
	return true
}

// failed takes note of a renewal of which nothing is known, and tells whether it
// is the first in a row.
func (t *Term) failed(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.trouble == nil
	t.trouble = err
	return first
}

// troubled tells whether the last renewal failed.
func (t *Term) troubled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trouble != nil
}

func (t *Term) believed() trust {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trust
}

// close ends what is left of the term, so that no timer outlives it.
func (t *Term) close() {
	t.end(ErrResigned)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alarm.Stop()
}
