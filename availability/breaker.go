package availability

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

var errPanic = errors.New("availability: panic")

var errUnseeded = errors.New("availability: the mirror is not whole")

const (
	tripsAfter = 5           // consecutive failures
	opensAgain = time.Second // until one trial call
)

// refusals are errors of a server that refuses some calls, mostly writes, and serves others.
var refusals = []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "UNREADABLE"}

// breaker is sony/gobreaker because it has no dependencies; failsafe-go brings in gRPC and its API
// still changes. The only other need is a semaphore.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]
}

func newBreaker(name string) breaker {
	return breaker{gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: opensAgain,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripsAfter },
		// A caller that left or ran out of time proves nothing about the server.
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
		IsSuccessful: func(err error) bool { return err == nil || answered(err) },
	})}
}

// answered reports whether the server has definitely answered.
func answered(err error) bool {
	for _, known := range []error{
		errUnseeded, redis.Nil, ErrNotFound, ErrTaken, ErrFull, ErrInactive, ErrNotOnline,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains(refusals, code)
}

func (b breaker) do(ctx context.Context, f func() error) (err error) {
	done, err := b.Allow()
	if err != nil {
		return err
	}
	err = errPanic
	defer func() {
		if err != nil && ctx.Err() != nil {
			done(context.Canceled)
		} else {
			done(err)
		}
	}()
	err = f()
	return err
}

func unseeded(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(reply.Error(), "UNSEEDED") {
		return errUnseeded
	}
	return err
}
