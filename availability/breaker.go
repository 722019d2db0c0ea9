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

// errPanic is of a call that did not return.
var errPanic = errors.New("availability: panic")

// errUnseeded is what a read script answers while the mirror is not whole.
var errUnseeded = errors.New("availability: the mirror is not whole")

const (
	tripsAfter = 5           // failures in a row
	opensAgain = time.Second // and then one call tries
)

// refusals are what a server answers that refuses some calls, mostly writes, and carries out
// others.
var refusals = []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "UNREADABLE"}

// breaker keeps calls from what fails again and again. sony/gobreaker it is: it depends on nothing,
// while failsafe-go would bring gRPC along, and its interface still changes; a semaphore is all
// else we need.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]
}

func newBreaker(name string) breaker {
	return breaker{gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: opensAgain,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripsAfter },
		// A caller that went away, or had no time, says nothing of the server; an answer is an answer.
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
		IsSuccessful: func(err error) bool { return err == nil || answered(err) },
	})}
}

// answered tells an error that says how things are from one that says that they cannot be known.
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

// do calls f, unless the breaker is open. ctx is the caller's.
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

// unseeded makes a script's answer UNSEEDED errUnseeded.
func unseeded(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(reply.Error(), "UNSEEDED") {
		return errUnseeded
	}
	return err
}
