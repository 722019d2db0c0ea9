package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const askEvery = time.Second

// await reads Redis until the condition holds, and returns that state. It returns ErrLate, the
// cause of ctx, or the error of a replica that ended by itself.
func (d *demo) await(ctx context.Context, what string, holds func(*state) bool) (state, error) {
	until := time.Now().Add(d.pace.Patience)
	var asked time.Time
	for {
		s, err := d.read(ctx)
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err == nil && holds(&s):
			return s, nil
		case time.Now().After(until): // one failed read is not a reason to give up
			return s, errors.Join(fmt.Errorf("%w: %s", ErrLate, what), err)
		}
		for _, r := range d.running() {
			if !r.Runs() {
				return s, r.complaint()
			}
		}
		if time.Since(asked) > askEvery {
			asked = time.Now()
			d.sayHold(ctx, s.leader)
		}
		if !wait.For(ctx, pollEvery) {
			return s, context.Cause(ctx)
		}
	}
}

// sayHold reports that the leader's sweeping is held anew.
func (d *demo) sayHold(ctx context.Context, leader string) {
	r := d.called(leader)
	if r == nil {
		return
	}
	j, ok := r.janitor(ctx)
	w := j.Witness
	if !ok || w.HeldFor == 0 {
		return
	}
	until := time.Now().Add(time.Duration(w.HeldFor * float64(time.Second)))
	if until.Sub(d.heldUntil) > askEvery {
		d.heldUntil = until
		d.say("  nothing may be swept for %.1f s more: Redis must be listened to for that long first (%s)",
			w.HeldFor, w.Reason)
	}
}

type event struct {
	what  string
	holds func(*state) bool
	say   func(*state)
	done  bool
}

// awaitAll reports each event as it happens, in any order.
func (d *demo) awaitAll(ctx context.Context, events []event) error {
	var waiting []string
	_, err := d.await(ctx, "the events of this step", func(s *state) bool {
		waiting = waiting[:0]
		for i := range events {
			e := &events[i]
			if !e.done && e.holds(s) {
				e.done = true
				e.say(s)
			}
			if !e.done {
				waiting = append(waiting, e.what)
			}
		}
		return len(waiting) == 0
	})
	if errors.Is(err, ErrLate) {
		return fmt.Errorf("%w: %s", err, strings.Join(waiting, "; "))
	}
	return err
}
