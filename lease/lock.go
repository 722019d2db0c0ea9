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

// errNotMine means that the server found another value, or none. After any other error of a lock
// the outcome is unknown.
var errNotMine = errors.New("lease: held by another, or expired")

// lock is one token and redsync's mutex for it, for one goroutine. It adds what redsync lacks:
//
//   - One token serves one acquire. redsync follows a failed acquire with a script that deletes the
//     token, so a reused token could delete itself.
//   - Every call has a deadline; redsync's Extend and Unlock have none.
//   - The server's "no" is distinguished from errors of unknown outcome.
//   - Extend never uses SETNX: a lease that was gone for a moment is lost.
type lock struct {
	token string
	mutex *redsync.Mutex
	pool  *pool
}

func newLock(c redis.UniversalClient, key, instance string, times timings) *lock {
	token := instance + "/" + rand.Text()
	p := &pool{Pool: goredis.NewPool(c)}
	return &lock{
		token: token,
		pool:  p,
		mutex: redsync.New(p).NewMutex(key,
			redsync.WithExpiry(times.ttl()),
			redsync.WithTries(1),
			redsync.WithValue(token), // compared by extend and release
			redsync.WithGenValueFunc(func() (string, error) { return token, nil }), // written by acquire
			// redsync's own bound, by default 5 % of the expiry, must not be shorter than the
			// contexts.
			redsync.WithTimeoutFactor(1),
			// redsync too must treat a reply after the trust window as a failure.
			redsync.WithDriftFactor(float64(times.margin())/float64(times.ttl())),
		),
	}
}

func (l *lock) acquire(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "acquire", func(ctx context.Context) (bool, error) {
		err := l.mutex.TryLockContext(ctx)
		return err == nil, err
	})
}

func (l *lock) extend(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "extend", l.mutex.ExtendContext)
}

// release needs a live context: Unlock with a cancelled one leaves the lease behind.
func (l *lock) release(ctx context.Context, within time.Duration) error {
	return l.call(ctx, within, "release", l.mutex.UnlockContext)
}

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

// pool stops redsync from cleaning up. After an acquire of unknown outcome redsync would at once
// send the script that deletes the token. If both requests are delayed, this elector may find that
// it holds the lease and lead, and then the late script deletes it. So pool cancels the attempt's
// context as soon as SETNX fails.
type pool struct {
	redsyncredis.Pool
	abandon context.CancelFunc // ends the current call
}

func (p *pool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	c, err := p.Pool.Get(ctx)
	return conn{Conn: c, pool: p}, err
}

type conn struct {
	redsyncredis.Conn
	pool *pool
}

func (c conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	ok, err := c.Conn.SetNX(name, value, expiry)
	if err != nil {
		c.pool.abandon()
	}
	return ok, err
}
