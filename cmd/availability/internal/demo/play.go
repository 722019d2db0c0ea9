package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/availability/workforce"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

func (d *demo) play(ctx context.Context) error {
	d.say("a PostgreSQL and a Redis of the demo's own run; apps ping every %v, and are offline after %v of silence",
		d.pace.Ping, d.pace.Stale)
	for i := range replicas {
		if _, err := d.launch(ctx, fmt.Sprintf("replica-%d", i+1)); err != nil {
			return err
		}
	}
	d.say("%d replicas serve: each has found the mirror whole, or has seeded it", replicas)
	var err error
	d.force, err = workforce.New(workforce.Config{
		Mitras: d.cfg.Mitras, Targets: d.balance(), Secret: []byte(d.secret), Backend: workforce.DB{Pool: d.db},
		Interval: d.pace.Ping, Sessions: 10, SessionLasts: 6 * time.Second, Polls: 50,
		Rest: 0.01, RestFor: 4 * time.Second, Seed: d.cfg.Seed,
	})
	if err != nil {
		return err
	}
	d.truth = &workforce.Truth{Force: d.force, DB: d.db, Redis: d.rdb}
	ctx, stop := context.WithCancel(ctx)
	var work conc.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { _ = d.force.Run(ctx) }) // returns nil
	work.Go(func() { d.watch(ctx) })
	d.say("%d mitras go online, 50 customers poll once a second, 10 sessions a second begin", d.cfg.Mitras)
	for _, step := range []func(context.Context) error{
		d.allOnline, d.leaderDies, d.redisIsEmptied, d.postgresRestarts,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if _, err := d.overruled(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, d.pace.Calm) {
			return context.Cause(ctx)
		}
	}
	return d.judge(ctx)
}

func (d *demo) allOnline(ctx context.Context) error {
	began := time.Now()
	err := d.until(ctx, "everybody to be online", func(context.Context) (bool, error) {
		c := d.force.Counts()
		return c.Online+c.Resting == d.cfg.Mitras, nil
	})
	if err == nil {
		d.say("all have been online, %.1f s later; some rest now and then", time.Since(began).Seconds())
	}
	return err
}

func (d *demo) kill() (since time.Time, ids []string) {
	since = time.Now()
	ids = d.force.Kill(silentApps)
	d.say("%d apps DIE without a word", len(ids))
	return since, ids
}

func (d *demo) leaderDies(ctx context.Context) error {
	var old *replica
	err := d.until(ctx, "a leader", func(ctx context.Context) (bool, error) {
		old = d.leader(ctx)
		return old != nil, nil
	})
	if err != nil {
		return err
	}
	since, ids := d.kill()
	old.kill()
	killed := time.Now()
	d.balance()
	d.say("KILLED the leader %s: whoever called it calls another", old.id)
	var next *replica
	err = d.until(ctx, "another to lead", func(ctx context.Context) (bool, error) {
		next = d.leader(ctx)
		return next != nil && next != old, nil
	})
	if err != nil {
		return err
	}
	d.say("%s leads %.1f s after", next.id, time.Since(killed).Seconds())
	if err := d.silence(ctx, since, ids); err != nil {
		return err
	}
	back, err := d.launch(ctx, fmt.Sprintf("replica-%d", replicas+1))
	if err != nil {
		return err
	}
	d.balance()
	d.say("%s is started in its place", back.id)
	return nil
}

func (d *demo) redisIsEmptied(ctx context.Context) error {
	since, ids := d.kill()
	if err := d.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("availabilitydemo: FLUSHALL: %w", err)
	}
	emptied := time.Now()
	d.say("FLUSHALL: nothing is left in the mirror; reads are answered by Postgres until it is seeded")
	err := d.until(ctx, "the mirror to be whole", func(ctx context.Context) (bool, error) {
		n, err := d.rdb.Exists(ctx, "mitras:seeded").Result()
		return n == 1, err
	})
	if err != nil {
		return err
	}
	n, err := d.truth.InRedis(ctx)
	if err != nil {
		return err
	}
	d.say("seeded %.2f s after, %d online; heartbeats are gone, so nobody is judged before they "+
		"have been heard for %v", time.Since(emptied).Seconds(), n, d.pace.Stale)
	return d.silence(ctx, since, ids)
}

func (d *demo) postgresRestarts(ctx context.Context) error {
	before := d.force.Counts()
	d.pg.stop()
	stopped := time.Now()
	d.say("Postgres STOPPED: heartbeats and reads go on with the mirror alone, changes wait")
	err := d.until(ctx, "heartbeats without Postgres", func(context.Context) (bool, error) {
		return d.force.Counts().Heartbeats > before.Heartbeats+d.cfg.Mitras/2, nil
	})
	if err != nil {
		return err
	}
	if !wait.For(ctx, d.pace.Calm) {
		return context.Cause(ctx)
	}
	c := d.force.Counts()
	d.say("%d heartbeats were acknowledged meanwhile, %d requests failed and are made again",
		c.Heartbeats-before.Heartbeats, c.Failed-before.Failed)
	if err := d.pg.start(ctx); err != nil {
		return err
	}
	d.say("Postgres runs again, %.1f s after", time.Since(stopped).Seconds())
	err = d.until(ctx, "changes to be taken again", func(context.Context) (bool, error) {
		return d.force.Counts().Accepted > c.Accepted, nil
	})
	if err == nil {
		d.say("sessions are accepted again, %.1f s after", time.Since(stopped).Seconds())
	}
	return err
}

func (d *demo) judge(ctx context.Context) error {
	d.say("%d dead apps come BACK", d.force.Revive(d.force.IDs()...))
	err := d.until(ctx, "all to be alive", func(context.Context) (bool, error) {
		return d.force.Counts().Dead == 0, nil
	})
	if err != nil {
		return err
	}
	d.force.Quiet()
	if err := d.agreed(ctx); err != nil {
		return err
	}
	all, err := d.overruled(ctx)
	if err != nil {
		return err
	}
	if len(all) < 2*silentApps {
		return errors.Join(ErrDiverged, fmt.Errorf("%d were set offline, and %d had died", len(all), 2*silentApps))
	}
	c := d.force.Counts()
	d.say("AGREED: %d mitras online in the mirror, in Postgres and as their apps know; %d sessions with the "+
		"mitras that the dispatcher knows; every counter and version is equal", c.Online, c.Running)
	d.say("  %d heartbeats acknowledged; %d mitras set offline for silence, each for %v or more: "+
		"nobody who pinged", c.Heartbeats, len(all), d.pace.Stale)
	return nil
}

// overruled fails if anybody who was set offline without asking had pinged.
func (d *demo) overruled(ctx context.Context) ([]workforce.Offlined, error) {
	all, err := d.truth.Offlined(ctx, d.began)
	if err != nil {
		return nil, err
	}
	if wrong := workforce.Overruled(all, d.pace.Stale); len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %d of %d; %s at %s, %v after it", ErrOverruled, len(wrong), len(all),
			wrong[0].Mitra, wrong[0].At, wrong[0].Silent)
	}
	return all, nil
}
