package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// errNotMine says that the server found another value, or none, in place of the token. After every
// other error of a lock nothing is known.
var errNotMine = errors.New("lease: held by another, or expired")

// lock is one token and redsync's mutex for it. It adds what redsync needs to be safe here:
//
//   - Never from two goroutines: the mutex does not lock itself.
//   - One token, one acquire. redsync follows a failed acquire with a script that deletes the
//     token, so a token used again could delete itself.
//   - A deadline for every call: redsync's Extend and Unlock have none.
//   - The server's "no" is told apart from errors that leave the outcome open.
//   - No SETNX on extend: a lease that was away for a moment is a lost one.
type lock struct {
	token string
	mutex *redsync.Mutex
	pool  *pool
}

// newLock makes a lock with a token of its own, `<instance>/<random>`.
func newLock(c redis.UniversalClient, key, instance string, times timings) *lock {
	token := instance + "/" + rand.Text()
	p := &pool{Pool: goredis.NewPool(c)}
	return &lock{
		token: token,
		pool:  p,
		mutex: redsync.New(p).NewMutex(key,
			redsync.WithExpiry(times.ttl()),
			redsync.WithTries(1),
			redsync.WithValue(token), // what extend and release compare
			redsync.WithGenValueFunc(func() (string, error) { return token, nil }), // what acquire writes
			// The contexts given here bound each call. redsync's own bound, 5 % of the expiry unless
			// told otherwise, must not be shorter.
			redsync.WithTimeoutFactor(1),
			// A reply later than the trust window is a failure to redsync too.
			redsync.WithDriftFactor(float64(times.margin())/float64(times.ttl())),
		),
	}
}

// acquire, extend and release return nil, errNotMine, or an error that leaves open whether the
// server did it.

// acquire takes the lease if it is free.
func (l *lock) acquire(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "acquire", func(ctx context.Context) (bool, error) {
		err := l.mutex.TryLockContext(ctx)
		return err == nil, err
	})
}

// extend gives the lease a whole TTL again if it holds the token.
func (l *lock) extend(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "extend", l.mutex.ExtendContext)
}

// release deletes the lease if it holds the token. The context must be alive: an Unlock with a
// cancelled one leaves the lease behind.
func (l *lock) release(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "release", l.mutex.UnlockContext)
}

// call makes one call of redsync, and reduces its errors to the three answers that matter.
func (l *lock) call(ctx context.Context, within time.Duration, op string,
	f func(context.Context) (bool, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l.pool.abandon = cancel
	begun := time.Now()
	done, err := f(ctx)
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	switch {
	case done:
		return nil
	case taken, errors.Is(err, redsync.ErrLockAlreadyExpired):
		return errNotMine
	default:
		return fmt.Errorf("lease: %s failed after %s: %w", op, time.Since(begun).Round(time.Millisecond), err)
	}
}

// pool keeps redsync from one thing. After an acquire of unknown fate redsync would at once send
// the script that deletes the token. If both requests are delayed on the way, this elector may find
// the lease its own and lead, and then the late script deletes it. So the attempt's context is
// cancelled as soon as the SETNX has failed, and the script is never sent.
type pool struct {
	redsyncredis.Pool
	abandon context.CancelFunc // ends the call under way
}

// Get returns a connection; part of redsync's interface.
func (p *pool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	c, err := p.Pool.Get(ctx)
	return conn{Conn: c, pool: p}, err
}

type conn struct {
	redsyncredis.Conn
	pool *pool
}

// SetNX acquires; part of redsync's interface.
func (c conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	ok, err := c.Conn.SetNX(name, value, expiry)
	if err != nil {
		c.pool.abandon()
	}
	return ok, err
}
