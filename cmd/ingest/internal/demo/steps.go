package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const differencesShown = 10

func (d *demo) play(ctx context.Context) (err error) {
	if d.fleet, err = simulate.New(simulate.Config{
		Devices: d.cfg.Devices, Targets: []string{"127.0.0.1:1"}, Interval: d.pace.Frame, Seed: d.cfg.Seed,
		LadderUnit: d.pace.Minute, Acknowledged: d.acked.add,
	}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.launchFirst(ctx); err != nil {
		return err
	}
	d.balance()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.fleet.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for _, step := range []func(context.Context) error{
		d.gather, d.killLeader, d.addReplica, d.closeLate, d.stopLeader,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, d.pace.Calm) {
			return context.Cause(ctx)
		}
	}
	return d.judge(ctx)
}

func (d *demo) launchFirst(ctx context.Context) error {
	d.say("Redis: %s", d.cfg.RedisURL)
	for i := range replicasAtStart {
		if _, err := d.launch(ctx, fmt.Sprintf("replica-%d", i+1)); err != nil {
			return err
		}
	}
	d.say("%d replicas serve (heartbeat every %v, TTL %v, lease %v)",
		replicasAtStart, d.pace.Beat, d.pace.TTL, d.pace.Lease)
	return nil
}

func (d *demo) gather(ctx context.Context) error {
	began := time.Now()
	d.say("%d trackers are switched on; each reports every %v", d.cfg.Devices, d.pace.Frame)
	s, err := d.await(ctx, "every device routable", d.allRoutable)
	if err != nil {
		return err
	}
	d.say("all %d devices routable, %.1f s after the first was switched on", d.cfg.Devices, seconds(began))
	d.sayEntries(&s)
	s, err = d.await(ctx, "somebody leads and may sweep", func(s *state) bool {
		r := d.called(s.leader)
		if r == nil || s.epoch == 0 {
			return false
		}
		j, ok := r.janitor(ctx)
		return ok && j.Leading && j.Witness.HeldFor == 0 && !j.Witness.LastTick.IsZero()
	})
	if err == nil {
		d.say("%s leads, epoch %d, and may sweep", s.leader, s.epoch)
	}
	return err
}

// killLeader lets the balancer notice a little later.
func (d *demo) killLeader(ctx context.Context) error {
	const says = "KILLED the leader %s: %d entries name it, and nobody is there"
	return d.endLeader(ctx, says, d.pace.Lease/3, func(r *replica) error {
		r.Kill()
		return nil
	})
}

// stopLeader acts as a deployment: the leader turns unready, and the balancer notices at once.
func (d *demo) stopLeader(ctx context.Context) error {
	const says = "STOPPED the leader %s gracefully: it holds %d devices"
	return d.endLeader(ctx, says, 0, func(r *replica) error {
		d.balance()
		return r.Signal(syscall.SIGTERM)
	})
}

func (d *demo) endLeader(
	ctx context.Context, says string, notice time.Duration, end func(*replica) error,
) error {
	before, err := d.await(ctx, "somebody leads", func(s *state) bool {
		r := d.called(s.leader)
		return r != nil && !r.leaving
	})
	if err != nil {
		return err
	}
	old, ended := d.called(before.leader), time.Now()
	old.leaving = true
	if err := end(old); err != nil {
		return fmt.Errorf("demo: end %s: %w", old.id, err)
	}
	d.say(says, old.id, before.naming(old.id))
	return d.awaitAll(ctx, []event{
		{what: "the balancer notices",
			holds: func(*state) bool { return time.Since(ended) >= notice },
			say: func(s *state) {
				d.balance()
				d.say("the balancer has noticed (%.1f s); %d devices are routable, the others try again",
					seconds(ended), d.routable(s))
			}},
		{what: "another leads",
			holds: func(s *state) bool {
				return s.leader != "" && s.leader != old.id && s.epoch > before.epoch
			},
			say: func(s *state) {
				d.say("%s leads %.2f s after, epoch %d", s.leader, seconds(ended), s.epoch)
			}},
		{what: "nothing of it is left",
			holds: func(s *state) bool { return s.left(old.id) && !old.Runs() },
			say: func(*state) {
				if n, err := d.swept(ctx, old.id); err == nil {
					d.say("%s is gone %.1f s after: its %d remaining entries swept (TTL %v), "+
						"the others handed back or taken over", old.id, seconds(ended), n, d.pace.TTL)
				}
			}},
		{what: "every device routable", holds: d.allRoutable,
			say: func(s *state) {
				d.say("all %d devices routable again %.1f s after", d.cfg.Devices, seconds(ended))
				d.sayEntries(s)
			}},
	})
}

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
		return d.fleet.Counts().HalfOpen >= forgotten+asked && d.allRoutable(s)
	})
	if err != nil {
		return err
	}
	d.say("all %d devices routable, %.1f s after; %d of them at the new one",
		d.cfg.Devices, seconds(began), s.naming(r.id))
	d.sayEntries(&s)
	return nil
}

func (d *demo) closeLate(ctx context.Context) error {
	began := time.Now()
	d.fleet.DropStale()
	d.say("the half-open sockets end at last; no late close may undo a newer claim")
	_, err := d.await(ctx, "late closes undo nothing", func(s *state) bool { return len(d.wrong(s)) == 0 })
	if err == nil {
		d.say("entries and indexes are as the sockets are, %.1f s after", seconds(began))
	}
	return err
}

func (d *demo) judge(ctx context.Context) error {
	var found []string
	s, err := d.await(ctx, "the registry is the truth", func(s *state) bool {
		found = d.wrong(s)
		return len(found) == 0
	})
	if errors.Is(err, ErrLate) {
		some := strings.Join(found[:min(differencesShown, len(found))], "; ")
		return fmt.Errorf("%w: %d differences: %s", ErrDiverged, len(found), some)
	}
	if err != nil {
		return err
	}
	acked, missing, twice, err := d.acked.compare(ctx, d.cfg.Redis)
	if err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%w: %d of %d acknowledged records are not in the stream",
			ErrDiverged, missing, acked)
	}
	d.say("CONVERGED: %d entries, each names the replica that holds the socket; "+
		"%d replicas on the roster, no other", len(s.entries), len(s.roster))
	d.say("  %d records acknowledged, every one is in the stream (%d twice: sent again)", acked, twice)
	return nil
}

func (d *demo) sayEntries(s *state) {
	var parts []string
	for _, r := range d.running() {
		part := fmt.Sprintf("%s %d", r.id, s.naming(r.id))
		if r.id == s.leader {
			part += " (leads)"
		}
		parts = append(parts, part)
	}
	records := d.fleet.Counts().Records
	d.say("  entries: %s; %d records acknowledged so far", strings.Join(parts, ", "), records)
}

func seconds(since time.Time) float64 { return time.Since(since).Seconds() }
