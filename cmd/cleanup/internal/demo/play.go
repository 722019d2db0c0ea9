package demo

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (d *demo) play(ctx context.Context) error {
	b := d.backend
	if err := b.open(ctx); err != nil {
		return err
	}
	d.say("a backend with 4 rooms, 7 users in its queue, 5 matches and 7 bots: %d keys and members",
		len(b.living)+len(b.orphans))
	if err := b.kill(ctx, "doomed"); err != nil {
		return err
	}
	d.say("it leaks: room doomed died with 8 reservations, 3 users left the queue, 2 matches are over, " +
		"2 bots crashed")
	b.unlisted = append(b.unlisted, "quiet")
	if err := b.rdb.HDel(ctx, listing, "quiet").Err(); err != nil {
		return err
	}
	d.say("room quiet lives, and was dropped from the listing by mistake: only its channel says that it lives")

	rules, err := d.rules()
	if err != nil {
		return err
	}
	environ := []string{
		"REDIS_URL=" + d.cfg.RedisURL, "MONGODB_URI=" + d.uri, "RULES=" + rules, "HTTP_ADDR=127.0.0.1:0",
		"CLEANUP_INTERVAL=1s", "CLEANUP_LEASE_TTL=2s", "HEARTBEAT_INTERVAL=500ms", "HEARTBEAT_TTL=2s",
		"LOG_FORMAT=json",
	}
	if err := d.plan(ctx, environ); err != nil {
		return err
	}
	if err := b.rdb.Del(ctx, listing).Err(); err != nil {
		return err
	}
	delete(b.living, listing) // until it is listed again
	d.say("somebody deletes the listing of rooms, and starts a worker: every room looks dead")
	if err := d.start(ctx, environ); err != nil {
		return err
	}
	d.say("the worker listens first: nothing goes before Redis was heard for 4 s")
	if err := d.watch(ctx); err != nil {
		return err
	}
	if err := d.stop(); err != nil {
		return err
	}
	d.say("SIGTERM: the worker has stopped, with status 0")
	left, err := d.left(ctx)
	switch {
	case err != nil:
		return err
	case len(left) > 0:
		return fmt.Errorf("%w: these are left: %s", ErrWrong, strings.Join(left, ", "))
	}
	d.say("exactly the orphans went: %d keys and members; all %d that live are there",
		len(b.orphans), len(b.living))
	return nil
}

func (d *demo) plan(ctx context.Context, environ []string) error {
	cmd := d.cfg.Command("plan")
	cmd.Env = append(cmd.Env, environ...)
	killed := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	killed.Env = cmd.Env
	out, err := killed.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cleanupdemo: cleanup plan: %w: %s", err, out)
	}
	d.say("cleanup plan says what would go, and deletes nothing:")
	for line := range strings.Lines(string(out)) {
		fmt.Fprint(d.cfg.Out, "        "+line)
	}
	return nil
}

// watch follows the worker until all orphans are gone, and for some cycles more. Rooms are listed
// again once only reservations are left.
func (d *demo) watch(ctx context.Context) error {
	b := d.backend
	said := map[string]string{}
	seats, removed, quiet := false, 0, -1
	return d.until(ctx, "all orphans to go", func() (bool, error) {
		// Waiting users keep coming back.
		for i := range 3 {
			key := "queue:joinedAt:waits-" + strconv.Itoa(i+1)
			if err := b.rdb.Set(ctx, key, time.Now().UnixMilli(), 0).Err(); err != nil {
				return false, err
			}
		}
		s, ok := d.status(ctx)
		if !ok {
			return false, nil
		}
		for _, rule := range s.Rules {
			now := rule.Outcome
			if rule.Reason != "" {
				now = strings.TrimSuffix(rule.Reason+": "+rule.Detail, ": ")
			}
			if now != said[rule.Rule] && rule.Reason != "" && rule.Reason != "gap" {
				d.say("rule %s is held: %s", rule.Rule, now)
			}
			said[rule.Rule] = now
		}
		if total, _ := s.Stats.Cumulative["totalKeysRemoved"].(float64); int(total) > removed {
			removed = int(total)
			var by []string
			for _, rule := range s.Rules {
				by = append(by, fmt.Sprintf("%s %d", rule.Rule, rule.Removed))
			}
			d.say("%d keys and members have gone; orphans by rule: %s", removed, strings.Join(by, ", "))
		}
		left, err := d.left(ctx)
		if err != nil {
			return false, err
		}
		isSeat := func(name string) bool { return strings.HasPrefix(name, "queue:reservation:") }
		others := slices.DeleteFunc(slices.Clone(left), isSeat)
		switch {
		case len(others) == 0 && len(left) > 0 && !seats:
			seats = true
			d.say("all other orphans have gone, and no reservation; the backend lists its rooms again")
			b.living[listing] = true
			return false, b.list(ctx)
		case len(left) == 0 && quiet < 0:
			d.say("no orphan is left; three cycles more, and nothing else may go")
			quiet = s.Stats.Cycles
		}
		return quiet >= 0 && s.Stats.Cycles >= quiet+3, nil
	})
}
