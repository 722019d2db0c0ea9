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

// await looks at Redis until what holds, and returns that look. Meanwhile it says if sweeping is held back. Errors are ErrLate, the
// cause of ctx, a replica's that ended against the script, and Redis'.
func (d *demo) await(ctx context.Context, what string, holds func(*state) bool) (state, error) {
	until := time.Now().Add(d.pace.Patience)
	var asked time.Time
	for {
		s, err := d.look(ctx)
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err != nil:
			return s, err
		case holds(&s):
			return s, nil
		case time.Now().After(until):
			return s, fmt.Errorf("%w: %s", ErrLate, what)
		}
		for _, r := range d.running() {
			if !r.runs() {
				return s, r.complaint()
			}
		}
		if time.Since(asked) > heldLook {
			asked = time.Now()
			d.tellDoubt(ctx, s.leader)
		}
		if !wait.For(ctx, d.pace.look) {
			return s, context.Cause(ctx)
		}
	}
}

// tellDoubt asks the leader whether it may sweep, and says it if a doubt has come up since the last time.
func (d *demo) tellDoubt(ctx context.Context, leader string) {
	r := d.called(leader)
	if r == nil {
		return
	}
	st, ok := r.status(ctx)
	w := st.Janitor.Witness
	if !ok || w.WarmIn == 0 {
		return
	}
	until := time.Now().Add(time.Duration(w.WarmIn * float64(time.Second)))
	if until.Sub(d.held) > heldLook {
		d.held = until
		d.say("  nothing may be swept for %.1f s more: Redis must be listened to for that long first (%s)", w.WarmIn, w.Reason)
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
		return ok && st.Janitor.Leading && st.Janitor.Witness.WarmIn == 0 && !st.Janitor.Witness.LastTick.IsZero()
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

func (d *demo) launchFirst(ctx context.Context) error {
	d.say("Redis: %s", d.cfg.RedisName)
	for i := range replicasAtStart {
		if _, err := d.launch(ctx, fmt.Sprintf("replica-%d", i+1)); err != nil {
			return err
		}
	}
	d.say("%d replicas serve (heartbeat every %v, TTL %v, lease %v)", replicasAtStart, d.pace.Beat, d.pace.TTL, d.pace.Lease)
	return nil
}

// gather lets the fleet connect.
func (d *demo) gather(ctx context.Context) error {
	began := time.Now()
	d.say("%d trackers are switched on; each reports every %v", d.cfg.Devices, d.pace.Frame)
	s, err := d.settled(ctx)
	if err != nil {
		return err
	}
	d.say("all %d devices routable, %.1f s after the first was switched on", d.cfg.Devices, time.Since(began).Seconds())
	d.board(&s)
	if err := d.warm(ctx); err != nil {
		return err
	}
	if s, err = d.await(ctx, "somebody leads", func(s *state) bool { return s.leader != "" && s.epoch > 0 }); err != nil {
		return err
	}
	d.say("%s leads, epoch %d, and may sweep", s.leader, s.epoch)
	return d.calm(ctx)
}

// killLeader kills whoever leads, and follows what becomes of it.
func (d *demo) killLeader(ctx context.Context) error {
	before, err := d.await(ctx, "somebody leads", func(s *state) bool { return d.called(s.leader) != nil })
	if err != nil {
		return err
	}
	dead := before.leader
	d.called(dead).kill()
	killed := time.Now()
	since := func() float64 { return time.Since(killed).Seconds() }
	d.say("KILLED the leader %s: %d entries name it, and nobody is there", dead, before.naming(dead))
	steps := []step{
		{what: "the balancer notices", holds: func(*state) bool { return time.Since(killed) > d.pace.notice },
			say: func(s *state) {
				d.balance()
				d.say("the balancer has noticed (%.1f s); %d devices have come back elsewhere, the others try again a minute later (%v here)",
					since(), d.routable(s)-before.without(dead), d.pace.Minute)
			}},
		{what: "another leads", holds: func(s *state) bool { return s.leader != "" && s.leader != dead && s.epoch > before.epoch },
			say: func(s *state) { d.say("%s leads %.1f s after the kill, epoch %d", s.leader, since(), s.epoch) }},
		{what: "what it left is swept", holds: func(s *state) bool { return s.left(dead) },
			say: func(*state) {
				if n, err := d.swept(ctx, dead); err == nil {
					d.say("its %d remaining entries swept %.1f s after the kill (TTL %v)", n, since(), d.pace.TTL)
				}
			}},
		{what: "every device routable", holds: func(s *state) bool { return d.routable(s) == d.cfg.Devices },
			say: func(s *state) {
				d.say("all %d devices routable again %.1f s after the kill", d.cfg.Devices, since())
				d.board(s)
			}},
	}
	if err := d.follow(ctx, steps); err != nil {
		return err
	}
	return d.calm(ctx)
}

// without counts the entries that do not name an instance.
func (s *state) without(id string) int { return len(s.entries) - s.naming(id) }

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
		return fmt.Errorf("%w: %s", ErrLate, strings.Join(waiting, "; "))
	}
	return err
}

// addReplica starts one more, and lets devices come to it.
func (d *demo) addReplica(ctx context.Context) error {
	r, err := d.launch(ctx, fmt.Sprintf("replica-%d", len(d.all)+1))
	if err != nil {
		return err
	}
	d.balance()
	d.say("ADDED %s, beside the others", r.id)
	began := time.Now()
	forgotten := d.fleet.Counts().HalfOpen
	asked := d.fleet.LoseCoverage(d.cfg.Devices / 3)
	d.say("%d devices lose their coverage: they leave sockets half-open, and come back on new ones", asked)
	s, err := d.await(ctx, "every device routable", func(s *state) bool {
		return d.fleet.Counts().HalfOpen >= forgotten+asked && d.routable(s) == d.cfg.Devices
	})
	if err != nil {
		return err
	}
	d.say("all %d devices routable, %.1f s after; %d of them at the new one", d.cfg.Devices, time.Since(began).Seconds(), s.naming(r.id))
	d.board(&s)
	if err := d.calm(ctx); err != nil {
		return err
	}
	return d.closeLate(ctx)
}

// closeLate ends the sockets that were left half-open, and waits until nothing but the truth is left of them.
func (d *demo) closeLate(ctx context.Context) error {
	began := time.Now()
	d.fleet.DropStale()
	d.say("the half-open sockets end at last; no late close may undo a newer claim")
	if _, err := d.await(ctx, "late closes undo nothing", func(s *state) bool { return len(d.wrong(s)) == 0 }); err != nil {
		return err
	}
	d.say("entries and indexes are as the sockets are, %.1f s after", time.Since(began).Seconds())
	return d.calm(ctx)
}

// stopLeader stops whoever leads, as a deployment does.
func (d *demo) stopLeader(ctx context.Context) error {
	before, err := d.await(ctx, "somebody leads", func(s *state) bool {
		r := d.called(s.leader)
		return r != nil && !r.leaving
	})
	if err != nil {
		return err
	}
	old := d.called(before.leader)
	held := before.naming(old.id)
	old.leaving = true
	d.balance() // it says that it is not ready, and a balancer listens
	if err := old.term(); err != nil {
		return err
	}
	stopped := time.Now()
	since := func() float64 { return time.Since(stopped).Seconds() }
	d.say("STOPPED the leader %s gracefully: it holds %d devices", old.id, held)
	err = d.follow(ctx, []step{
		{what: "another leads", holds: func(s *state) bool { return s.leader != "" && s.leader != old.id && s.epoch > before.epoch },
			say: func(s *state) { d.say("%s leads %.2f s after, epoch %d", s.leader, since(), s.epoch) }},
		{what: "it has left", holds: func(s *state) bool { return s.left(old.id) && !old.runs() },
			say: func(*state) {
				if n, err := d.swept(ctx, old.id); err == nil {
					d.say("%s is gone %.1f s after: it handed back its entries itself, %d were left to be swept", old.id, since(), n)
				}
			}},
		{what: "every device routable", holds: func(s *state) bool { return d.routable(s) == d.cfg.Devices },
			say: func(s *state) {
				d.say("all %d devices routable again %.1f s after", d.cfg.Devices, since())
				d.board(s)
			}},
	})
	if err != nil {
		return err
	}
	return d.calm(ctx)
}

// judge compares Redis with the sockets, when nothing is under way any more.
func (d *demo) judge(ctx context.Context) error {
	var found []string
	s, err := d.await(ctx, "the registry is the truth", func(s *state) bool {
		found = d.wrong(s)
		return len(found) == 0
	})
	if errors.Is(err, ErrLate) {
		return fmt.Errorf("%w: %d differences: %s", ErrDiverged, len(found), strings.Join(found[:min(shown, len(found))], "; "))
	}
	if err != nil {
		return err
	}
	acked, missing, twice, err := d.acked.against(ctx, d.cfg.Redis)
	if err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%w: %d of %d acknowledged records are not in the stream", ErrDiverged, missing, acked)
	}
	d.say("CONVERGED: %d entries, each names the replica that holds the socket; %d replicas on the roster, no other", len(s.entries), len(s.roster))
	d.say("  %d records acknowledged, every one is in the stream (%d twice: sent again)", acked, twice)
	return nil
}

// calm lets the eye rest.
func (d *demo) calm(ctx context.Context) error {
	if !wait.For(ctx, d.pace.Calm) {
		return context.Cause(ctx)
	}
	return nil
}
