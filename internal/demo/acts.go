package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

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

// killLeader kills the leader. The balancer notices it a little later.
func (d *demo) killLeader(ctx context.Context) error {
	return d.endLeader(ctx, "KILLED the leader %s: %d entries name it, and nobody is there", (*replica).kill, d.pace.notice)
}

// stopLeader stops the leader, as a deployment does. It says that it is not ready, and the balancer
// listens.
func (d *demo) stopLeader(ctx context.Context) error {
	return d.endLeader(ctx, "STOPPED the leader %s gracefully: it holds %d devices", func(r *replica) error {
		r.leaving = true
		d.balance()
		return r.term()
	}, 0)
}

// endLeader ends the leader and follows what becomes of it, of its entries and its devices.
func (d *demo) endLeader(ctx context.Context, says string, end func(*replica) error, notice time.Duration) error {
	before, err := d.await(ctx, "somebody leads", func(s *state) bool {
		r := d.called(s.leader)
		return r != nil && !r.leaving
	})
	if err != nil {
		return err
	}
	old := d.called(before.leader)
	ended := time.Now()
	if err := end(old); err != nil {
		return err
	}
	d.say(says, old.id, before.naming(old.id))
	since := func() float64 { return time.Since(ended).Seconds() }
	err = d.follow(ctx, []step{
		{what: "the balancer notices", holds: func(*state) bool { return time.Since(ended) >= notice },
			say: func(s *state) {
				d.balance()
				d.say("the balancer has noticed (%.1f s); %d devices are routable, the others try again", since(), d.routable(s))
			}},
		{what: "another leads", holds: func(s *state) bool { return s.leader != "" && s.leader != old.id && s.epoch > before.epoch },
			say: func(s *state) { d.say("%s leads %.2f s after, epoch %d", s.leader, since(), s.epoch) }},
		{what: "nothing of it is left", holds: func(s *state) bool { return s.left(old.id) && !old.Runs() },
			say: func(*state) {
				if n, err := d.swept(ctx, old.id); err == nil {
					d.say("%s is gone %.1f s after: its %d remaining entries swept (TTL %v), the others handed back or taken over",
						old.id, since(), n, d.pace.TTL)
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

// closeLate ends the sockets that were left half-open, and waits until nothing but the truth is
// left of them.
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
