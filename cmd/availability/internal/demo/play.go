package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/workforce"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

type replica struct {
	*process.Process
	id, url string
}

func (d *demo) launch(ctx context.Context, id string) error {
	cmd := d.cfg.Command()
	cmd.Env = append(cmd.Env, d.environment(id)...)
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return fmt.Errorf("availabilitydemo: start %s: %w", id, err)
	}
	r := &replica{Process: child, id: id}
	d.all = append(d.all, r)
	err = d.until(ctx, id+" to serve", func(context.Context) (bool, error) {
		addr := r.Said("serving HTTP", "addr")
		r.url = "http://" + addr
		return addr != "", nil
	})
	if err == nil && d.force != nil {
		d.force.SetTargets(d.targets()...)
	}
	return err
}

func (d *demo) targets() (urls []string) {
	for _, r := range d.all {
		urls = append(urls, r.url)
	}
	return urls
}

func (d *demo) killAll() {
	for _, r := range d.all {
		r.Kill()
	}
}

// leads returns the index of the leader, -1 if none leads or Redis does not answer.
func (d *demo) leads(ctx context.Context) int {
	holder, err := d.elector.Holder(ctx)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(d.all, func(r *replica) bool { return r.id == holder.Instance })
}

// until waits for something that has to happen. One failed look does not end the wait.
func (d *demo) until(ctx context.Context, what string, happened func(context.Context) (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		asked, cancel := context.WithTimeout(ctx, 10*askTime)
		done, why := happened(asked)
		cancel()
		if done {
			return nil
		}
		for _, r := range d.all {
			if text := r.Log(); !r.Runs() {
				return fmt.Errorf("availabilitydemo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("availabilitydemo: waited in vain for %s: %v", what, why)
		}
		if !wait.For(ctx, poll) {
			return context.Cause(ctx)
		}
	}
}

func (d *demo) play(ctx context.Context) error {
	d.say("a PostgreSQL and a Redis of the demo's own run; apps ping every %v, and are offline after %v of silence",
		d.pace.Ping, d.pace.Stale)
	for i := range replicas {
		if err := d.launch(ctx, fmt.Sprintf("replica-%d", i+1)); err != nil {
			return err
		}
	}
	d.say("%d replicas serve: each has found the mirror whole, or has seeded it", replicas)
	d.force = workforce.New(workforce.Config{
		Mitras: d.cfg.Mitras, Targets: d.targets(), Secret: []byte(d.secret), DB: d.db, Interval: d.pace.Ping,
		Sessions: 10, SessionLasts: 6 * time.Second, Polls: 50, Rest: 0.01, Seed: d.cfg.Seed,
	})
	d.truth = &workforce.Truth{Force: d.force, Redis: d.rdb}
	ctx, stop := context.WithCancel(ctx)
	var work conc.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { d.force.Run(ctx) })
	work.Go(func() { d.force.Watch(ctx, d.truth, lookEvery, func(line string) { d.say("  | %s", line) }) })
	d.say("%d mitras go online, 50 customers poll once a second, 10 sessions a second begin", d.cfg.Mitras)
	for _, step := range []func(context.Context) error{
		d.allOnline, d.leaderDies, d.redisIsEmptied, d.postgresRestarts, d.judge,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, d.pace.Calm) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *demo) allOnline(ctx context.Context) error {
	began := time.Now()
	err := d.until(ctx, "everybody to be online", func(context.Context) (bool, error) {
		return d.force.Counts().WentOnline >= d.cfg.Mitras, nil
	})
	d.say("all have been online, %.1f s later; some rest now and then", time.Since(began).Seconds())
	return err
}

// appsDie returns a wait until all who died are offline in both stores.
func (d *demo) appsDie() (silence func(context.Context) error) {
	since, ids := time.Now(), d.force.Kill(silentApps)
	d.say("%d apps DIE without a word", len(ids))
	return func(ctx context.Context) error {
		var gone []time.Duration
		err := d.until(ctx, "the dead to be set offline", func(ctx context.Context) (bool, error) {
			all, err := d.truth.Offlined(ctx, since)
			gone = nil
			for _, o := range all {
				if slices.Contains(ids, o.Mitra) && !d.rdb.SIsMember(ctx, "mitras:online", o.Mitra).Val() {
					gone = append(gone, o.Silent)
				}
			}
			return len(gone) == len(ids), err
		})
		if err != nil {
			return err
		}
		d.say("all %d are offline in Postgres and in the mirror: %.1f to %.1f s after their last heartbeat "+
			"(stale_after is %v)", len(ids), slices.Min(gone).Seconds(), slices.Max(gone).Seconds(), d.pace.Stale)
		return nil
	}
}

func (d *demo) leaderDies(ctx context.Context) error {
	led := func(ctx context.Context) (bool, error) { return d.leads(ctx) >= 0, nil }
	if err := d.until(ctx, "a leader", led); err != nil {
		return err
	}
	silence, at := d.appsDie(), max(0, d.leads(ctx))
	old := d.all[at]
	d.all = slices.Delete(slices.Clone(d.all), at, at+1)
	old.Kill()
	killed := time.Now()
	d.force.SetTargets(d.targets()...)
	d.say("KILLED the leader %s: whoever called it calls another", old.id)
	if err := d.until(ctx, "another to lead", led); err != nil {
		return err
	}
	d.say("another leads %.1f s after", time.Since(killed).Seconds())
	if err := silence(ctx); err != nil {
		return err
	}
	d.say("a replica is started in its place")
	return d.launch(ctx, fmt.Sprintf("replica-%d", replicas+1))
}

func (d *demo) redisIsEmptied(ctx context.Context) error {
	silence := d.appsDie()
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
	d.say("seeded %.2f s after; heartbeats are gone, so nobody is judged before they have been heard for %v",
		time.Since(emptied).Seconds(), d.pace.Stale)
	return silence(ctx)
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
	d.say("sessions are accepted again, %.1f s after", time.Since(stopped).Seconds())
	return err
}

func (d *demo) judge(ctx context.Context) error {
	d.say("%d dead apps come BACK", d.force.Revive())
	d.force.Quiet()
	var differ []string
	err := d.until(ctx, "all to agree", func(ctx context.Context) (_ bool, err error) {
		differ, err = d.truth.Differences(ctx)
		return err == nil && len(differ) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%w; %d differences: %s", err, len(differ), strings.Join(differ[:min(5, len(differ))], "; "))
	}
	all, err := d.truth.Offlined(ctx, d.began)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.Silent < d.pace.Stale {
			return fmt.Errorf("availabilitydemo: %s was set offline at %s, %v after a heartbeat", o.Mitra, o.At, o.Silent)
		}
	}
	c := d.force.Counts()
	d.say("AGREED: %d mitras online in the mirror, in Postgres and as their apps know; every counter of sessions "+
		"and every version is equal", c.Online)
	d.say("  %d heartbeats acknowledged; %d mitras set offline for silence, each for %v or more: "+
		"nobody who pinged", c.Heartbeats, len(all), d.pace.Stale)
	return nil
}
