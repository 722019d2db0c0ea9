package lease

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
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

//go:embed cap.lua
var capLua string

var capScript = redis.NewScript(capLua)

// mistyped replaces the value of a lease that is a key of another type. Nobody leads by such a key.
// Contenders rename it after a whole TTL.
const mistyped = "(a key of another type)"

// longest is how many bytes are read of the lease and of the epoch. Somebody may have written more
// than fits in memory.
const longest = 1024

// Holder is who holds the lease, as Redis has it.
type Holder struct {
	Instance string        // the whole value if this package did not write it
	Token    string        // the lease's value, or a note if the key is not a string
	TTL      time.Duration // until it expires; negative: never
	Epoch    uint64        // the latest drawn: the holder's, unless it is just drawing one; 0: none
}

// Holder reads in one round trip who holds the lease. If nobody does, only Epoch is set.
func (e *Elector) Holder(ctx context.Context) (Holder, error) {
	h, _, err := e.readHolder(ctx)
	return h, err
}

// HolderIn is [Elector.Holder] in a pipeline of the elector's client. The returned function takes
// the result of together.Exec. A waiter that sees the lease like this need not look itself.
func (e *Elector) HolderIn(ctx context.Context, pipe redis.Pipeliner) func(error) (Holder, error) {
	answer := askHolder(ctx, pipe, e.key, e.epochKey)
	return func(err error) (Holder, error) {
		h, held, err := answer(err)
		e.met(h.Epoch)
		if held {
			at := time.Now().Add(e.untilFree(h.TTL, 0))
			e.nextLook.Store(&at)
		}
		return h, err
	}
}

func (e *Elector) readHolder(ctx context.Context) (h Holder, held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.times.call())
	defer cancel()
	h, held, err = ReadHolder(ctx, e.client, e.key)
	e.met(h.Epoch)
	return h, held, err
}

// ReadHolder is [Elector.Holder] for processes that do not contend.
func ReadHolder(
	ctx context.Context, client redis.UniversalClient, key string,
) (h Holder, held bool, err error) {
	prefix, err := slotPrefix(key)
	if err != nil {
		return Holder{}, false, err
	}
	pipe := client.Pipeline()
	answer := askHolder(ctx, pipe, key, prefix+":epoch")
	return answer(together.Exec(ctx, pipe))
}

// The returned function reads the answer, given the error of together.Exec.
func askHolder(
	ctx context.Context, p redis.Pipeliner, key, epochKey string,
) func(error) (h Holder, held bool, err error) {
	value, left := p.GetRange(ctx, key, 0, longest-1), p.PTTL(ctx, key)
	epoch := p.GetRange(ctx, epochKey, 0, longest-1)
	return func(err error) (h Holder, held bool, _ error) {
		for _, err := range []error{err, value.Err(), left.Err(), epoch.Err()} {
			if err != nil && !wrongType(err) {
				return Holder{}, false, fmt.Errorf("lease: read the holder: %w", err)
			}
		}

		h.Epoch, _ = strconv.ParseUint(epoch.Val(), 10, 64)
		// PTTL returns -2 without a lease, also if it expired between the two commands.
		if left.Val() == -2 {
			return h, false, nil
		}
		h.Token, h.TTL = value.Val(), left.Val()
		if wrongType(value.Err()) {
			h.Token = mistyped
		}
		h.Instance = instanceOf(h.Token)
		return h, true, nil
	}
}

func (e *Elector) asideKey() string {
	return e.aside + strconv.FormatInt(time.Now().UnixMicro(), 10)
}

func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

func instanceOf(token string) string {
	if i := strings.LastIndexByte(token, '/'); i > 0 {
		return token[:i]
	}
	return token
}

// stuckWatch watches for a lease that never expires. It uses neither clock nor Redis.
type stuckWatch struct {
	token string
	since time.Time     // when first seen like this
	last  time.Time     // when last seen like this
	left  time.Duration // what was left then; negative: no expiry
	short string        // the value, if at most a TTL was left when last seen in order
}

// saw reports whether the lease has stood still for a whole TTL: always the same value, and either
// no expiry or the same time left. If the time left falls, the lease ends, however late; if it
// rises, a holder renews. Both restart the watch, as does half a TTL without an observation.
//
// The exception is a long, falling time left that was short before. No renewal can have done that:
// the server's clock went back, and a holder that does not renew for a TTL is gone.
func (v *stuckWatch) saw(h Holder, now time.Time, times timings) bool {
	if h.TTL >= 0 && h.TTL <= times.ttl() {
		*v = stuckWatch{short: h.Token}
		return false
	}
	distant := h.TTL > times.distant()
	if !distant && h.TTL >= 0 {
		v.short = "" // its holder may have a longer TTL, and renew less than once in ours
	}
	wentBack := v.short == h.Token && distant && h.TTL < v.left
	if v.token != h.Token || v.left != h.TTL && !wentBack || now.Sub(v.last) > times.ttl()/2 {
		v.token, v.since = h.Token, now
	}
	v.last, v.left = now, h.TTL
	return now.Sub(v.since) >= times.ttl()
}

// capStuck caps a lease that would not end, if it still holds the value that was watched. A key of
// another type is renamed.
func (e *Elector) capStuck(ctx context.Context, h Holder) error {
	if !e.stuckWatch.saw(h, time.Now(), e.times) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.times.call())
	defer cancel()
	ttl := e.times.ttl()
	keys := []string{e.key, e.asideKey()}
	done, err := capScript.Run(ctx, e.client, keys, h.Token, ttl.Milliseconds(), mistyped, longest).Int()
	switch {
	case err != nil:
		return fmt.Errorf("lease: cap: %w", err)
	case done == 1:
		e.log.Warn("capped a lease that would not expire",
			"holder", h.Instance, "token", h.Token, "expiry", h.TTL, "ttl", ttl)
	case done == 2:
		e.log.Warn("renamed a key of another type in the lease's place (check who wrote it)",
			"now", keys[1])
	}
	return nil
}
