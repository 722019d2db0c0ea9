package lease

import (
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
	e.nextLook.Store(nil) // it may be for the own lease
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
	e.nextLook.Store(nil)
	h, held, err := e.readHolder(ctx)
	if err != nil {
		return nil, next, err
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
		return nil, e.untilFree(h.TTL, next), e.capStuck(ctx, h)
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

// untilFree returns the time until a held lease can have expired. Subscribers hear of a release;
// nothing else changes before. Without a subscription, or an expiry within a TTL, it is at most
// retry.
func (e *Elector) untilFree(left, retry time.Duration) time.Duration {
	if left < 0 || left > e.times.ttl() {
		return retry
	}
	// Redis rounds PTTL down.
	left += time.Millisecond + rand.N(wakeJitter-time.Millisecond)
	if !e.subscribed.Load() {
		left = min(left, retry)
	}
	return left + e.yield()
}

// take is not interrupted by the end of ctx: the outcome would be unknown.
func (e *Elector) take(ctx context.Context) (*lock, error) {
	l := newLock(e.client, e.key, e.instance, e.times)
	err := l.acquire(context.WithoutCancel(ctx), e.times.call())
	if err == nil {
		e.acquirePending = nil
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
		// HolderIn has seen the lease held meanwhile.
		if at := e.nextLook.Load(); at != nil && e.acquirePending == nil && time.Until(*at) > 0 {
			return e.pause(ctx, time.Until(*at))
		}
	case <-e.released:
		if !wait.For(ctx, rand.N(wakeJitter)+e.yield()) {
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
