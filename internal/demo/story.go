package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/simulate"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	cleanTime = 5 * time.Second // for removing what was written
	heldLook  = time.Second     // between two questions to the leader, whether it may sweep
	shown     = 10              // differences, at most, of an end that went wrong
)

// tell is the story, and its verdict.
func (d *demo) tell(ctx context.Context) (err error) {
	if d.fleet, err = simulate.New(simulate.Config{
		Devices: d.cfg.Devices, Targets: []string{"127.0.0.1:1"}, Interval: d.pace.Frame, Seed: d.cfg.Seed,
		LadderUnit: d.pace.Minute, Acknowledged: d.acked.acknowledged,
	}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.launchFirst(ctx); err != nil {
		return err
	}
	d.balance()
	life, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.fleet.Run(life) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for _, act := range []func(context.Context) error{d.gather, d.killLeader, d.addReplica, d.stopLeader, d.judge} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await looks at Redis until what holds, and returns that look. Meanwhile it says if sweeping is
// held back. Errors are ErrLate, the cause of ctx, and a replica's that ended against the script.
func (d *demo) await(ctx context.Context, what string, holds func(*state) bool) (state, error) {
	until := time.Now().Add(d.pace.Patience)
	var asked time.Time
	for {
		s, err := d.look(ctx)
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err == nil && holds(&s):
			return s, nil
		case time.Now().After(until): // a look that failed once is no reason to give up
			return s, errors.Join(fmt.Errorf("%w: %s", ErrLate, what), err)
		}
		for _, r := range d.running() {
			if !r.Runs() {
				return s, r.complaint()
			}
		}
		if time.Since(asked) > heldLook {
			asked = time.Now()
			d.tellHold(ctx, s.leader)
		}
		if !wait.For(ctx, d.pace.look) {
			return s, context.Cause(ctx)
		}
	}
}

// tellHold asks the leader whether it may sweep, and says it if a hold has come up since the last
// time.
func (d *demo) tellHold(ctx context.Context, leader string) {
	r := d.called(leader)
	if r == nil {
		return
	}
	st, ok := r.status(ctx)
	w := st.Janitor.Witness
	if !ok || w.HeldFor == 0 {
		return
	}
	until := time.Now().Add(time.Duration(w.HeldFor * float64(time.Second)))
	if until.Sub(d.held) > heldLook {
		d.held = until
		d.say("  nothing may be swept for %.1f s more: Redis must be listened to for that long first (%s)", w.HeldFor, w.Reason)
	}
}

// warm waits until the leader may sweep.
func (d *demo) warm(ctx context.Context) error {
	_, err := d.await(ctx, "sweeping may begin", func(s *state) bool {
		r := d.called(s.leader)
		if r == nil {
			return false
		}
		st, ok := r.status(ctx)
		return ok && st.Janitor.Leading && st.Janitor.Witness.HeldFor == 0 && !st.Janitor.Witness.LastTick.IsZero()
	})
	return err
}

// settled waits until every device is routable, exactly.
func (d *demo) settled(ctx context.Context) (state, error) {
	return d.await(ctx, "every device routable", func(s *state) bool { return d.routable(s) == d.cfg.Devices })
}

// board says who has how many entries, and who leads.
func (d *demo) board(s *state) {
	var parts []string
	for _, r := range d.running() {
		part := fmt.Sprintf("%s %d", r.id, s.naming(r.id))
		if r.id == s.leader {
			part += " (leads)"
		}
		parts = append(parts, part)
	}
	d.say("  entries: %s; %d records acknowledged so far", strings.Join(parts, ", "), d.fleet.Counts().Records)
}

// step is something that is to happen, in any order with others.
type step struct {
	what  string
	holds func(*state) bool
	say   func(*state)
	done  bool
}

// follow waits until all steps have happened, and says each when it has.
func (d *demo) follow(ctx context.Context, steps []step) error {
	var waiting []string
	_, err := d.await(ctx, "the steps of this act", func(s *state) bool {
		waiting = waiting[:0]
		for i := range steps {
			p := &steps[i]
			if !p.done && p.holds(s) {
				p.done = true
				p.say(s)
			}
			if !p.done {
				waiting = append(waiting, p.what)
			}
		}
		return len(waiting) == 0
	})
	if errors.Is(err, ErrLate) {
		return fmt.Errorf("%w: %s", err, strings.Join(waiting, "; "))
	}
	return err
}

// calm lets the eye rest.
func (d *demo) calm(ctx context.Context) error {
	if !wait.For(ctx, d.pace.Calm) {
		return context.Cause(ctx)
	}
	return nil
}
