package lease

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// wakeJitter spreads the waiters: all but the first find the lease held.
	wakeJitter = 50 * time.Millisecond
	// silence is after how many TTLs without a message a waiter checks its subscription. A missed
	// release is noticed anyway when the lease can expire.
	silence = 4
)

func (e *Elector) campaign(ctx context.Context) *Term {
	for next := time.Duration(0); e.pause(ctx, next); {
		var (
			term *Term
			err  error
		)
		term, next, err = e.attempt(ctx)
		if err == nil || ctx.Err() == nil {
			e.attempts.Note(err)
		}
		if term != nil {
			return term
		}
	}
	if e.acquirePending != nil {
		// Nobody is left to adopt it, and it would hold the lease for a TTL in a dead name.
		_ = e.unlock(ctx, e.acquirePending) // logs what goes wrong
	}
	return nil
}

// attempt reads the holder first: trying blindly would cost a write and a script. The read also
// shows whether an earlier attempt succeeded after all, and whether the lease will ever expire.
// Without a term, attempt returns the time until the next one.
func (e *Elector) attempt(ctx context.Context) (*Term, time.Duration, error) {
	next := e.times.nextAttempt()
	after, first := e.contend()
	if !first {
		after = e.reserveAfter
	}
	h, held, err := e.look(ctx, first)
	if err != nil {
		return nil, next, err
	}
	if held {
		e.freeSince = time.Time{}
	} else if left := e.freeFor(after); left > 0 {
		return nil, left, nil
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
		// Subscribers hear of a release; nothing else changes before the lease can expire. Redis
		// rounds PTTL down.
		left := h.TTL + time.Millisecond + rand.N(wakeJitter-time.Millisecond)
		if !first {
			// Once a TTL with all others, and again soon after the lease can have expired.
			left = min(e.others.TurnAfter(h.TTL, e.times.reserveTurn()), e.others.Turns(e.times.ttl()))
		}
		if h.TTL >= 0 && (left < next || (e.subscribed.Load() || !first) && h.TTL <= e.times.ttl()) {
			next = left
		}
		return nil, next, e.capStuck(ctx, h)
	}
	var term *Term
	if err == nil {
		term, err = e.begin(ctx, l, trustWindow{since: begun, times: e.times})
	}
	if errors.Is(err, errNotMine) {
		err = nil // another was faster: not a failure
	}
	return term, next, err
}

// look reads alone after a failure: on a Cluster, one slot without a server fails the whole
// pipeline.
func (e *Elector) look(ctx context.Context, first bool) (h Holder, held bool, err error) {
	if first || e.lookAlone {
		h, held, err = e.readHolder(ctx)
	} else {
		h, held, err = e.readTogether(ctx)
	}
	e.lookAlone = err != nil
	return h, held, err
}

// freeFor returns how much longer the lease must stay free before it is taken: in all less than a
// TTL, the cool-down of an instance that resigned.
func (e *Elector) freeFor(after time.Duration) time.Duration {
	e.freeSince = cmp.Or(e.freeSince, time.Now())
	return min(after, e.times.ttl()*2/3) - time.Since(e.freeSince)
}

// take is not interrupted by the end of ctx: the outcome would be unknown.
func (e *Elector) take(ctx context.Context) (*lock, error) {
	l := newLock(e.client, e.key, e.instance, e.times)
	err := l.acquire(context.WithoutCancel(ctx), e.times.call())
	if err == nil {
		// The lease was not free, whether or not a term comes of it.
		e.acquirePending, e.freeSince = nil, time.Time{}
	} else if !errors.Is(err, errNotMine) {
		e.acquirePending = l
	}
	return l, err
}

// adopt takes over the lease of an earlier attempt whose reply was lost. Its age is unknown, so it
// is extended and trusted from then on.
func (e *Elector) adopt(ctx context.Context) (*lock, error) {
	l := e.acquirePending
	err := l.extend(context.WithoutCancel(ctx), e.times.call())
	if err == nil || errors.Is(err, errNotMine) {
		e.acquirePending = nil
	}
	return l, err
}

// begin draws the epoch. It retries until the first renewal is due, or ctx ends; then it releases
// the lease.
func (e *Elector) begin(ctx context.Context, l *lock, w trustWindow) (*Term, error) {
	failpoint.Hit(failpoint.Acquiring)
	epoch, err := e.draw(ctx, w.budget(time.Now()), l.token, 0)
	for err != nil && !errors.Is(err, errNotMine) &&
		time.Now().Before(w.renewAt()) && wait.For(ctx, e.times.again()) {
		epoch, err = e.draw(ctx, w.budget(time.Now()), l.token, 0)
	}
	switch {
	case errors.Is(err, errNotMine):
		return nil, err // fenced: nothing to release
	case err != nil:
		_ = e.unlock(ctx, l) // logs what goes wrong
		return nil, err
	}

	term := newTerm(ctx, e, l, w, epoch)
	if !e.install(term) {
		term.close()
		_ = e.unlock(ctx, l)
		return nil, nil
	}
	e.stuckWatch = stuckWatch{}
	e.report(Acquired, term, nil)
	return term, nil
}

// pause waits for d or a release, and for the cool-down. It reports false once ctx has ended.
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
	for left := e.coolsDownFor(); left > 0; left = e.coolsDownFor() {
		if !wait.For(ctx, left) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (e *Elector) announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.times.part())
	defer cancel()
	err := e.client.Publish(ctx, e.channel, e.instance).Err()
	if err == nil || redis.IsPermissionError(err) {
		e.announces.Note(err)
	} else {
		e.log.Debug("could not announce the release", "error", err)
	}
}

func (e *Elector) listen(ctx context.Context) {
	wake := func() {
		select {
		case e.released <- struct{}{}:
		default: // awake already
		}
	}
	subscribe.Channel{
		Client: e.client, Name: e.channel,
		Silence: silence * e.times.ttl(), Retry: e.times.nextAttempt, Log: e.log,
		Message: func(string) { wake() },
		Subscribed: func(is bool) {
			e.subscribed.Store(is)
			if is { // a new subscription may have missed a release
				wake()
			}
		},
	}.Run(ctx)
}
