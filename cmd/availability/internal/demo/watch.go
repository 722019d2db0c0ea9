package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/availability/workforce"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const lookEvery = 2 * time.Second

func (d *demo) watch(ctx context.Context) {
	before := d.force.Counts()
	for at := time.Now(); wait.For(ctx, lookEvery); {
		asked, cancel := context.WithTimeout(ctx, askTime)
		stores := d.truth.Stores(asked)
		cancel()
		now, c := time.Now(), d.force.Counts()
		line := workforce.Line(&c, &before, now.Sub(at), stores)
		if ctx.Err() == nil {
			d.say("  | %s", line)
		}
		at, before = now, c
	}
}

func (d *demo) until(ctx context.Context, what string, happened func(context.Context) (bool, error)) error {
	var why error
	for end := time.Now().Add(patience); ; {
		asked, cancel := context.WithTimeout(ctx, 10*askTime)
		done, err := happened(asked)
		cancel()
		if done {
			return nil
		}
		why = err // a single failed look does not end the wait
		for _, r := range d.running() {
			if !r.Runs() {
				return r.complaint()
			}
		}
		if time.Now().After(end) {
			if why != nil {
				return fmt.Errorf("%w for %s: %w", ErrLate, what, why)
			}
			return fmt.Errorf("%w for %s", ErrLate, what)
		}
		if !wait.For(ctx, poll) {
			return context.Cause(ctx)
		}
	}
}

func (d *demo) agreed(ctx context.Context) error {
	var found []string
	err := d.until(ctx, "all to agree", func(ctx context.Context) (bool, error) {
		var err error
		found, err = d.truth.Differences(ctx)
		return err == nil && len(found) == 0, err
	})
	if err != nil && len(found) > 0 {
		return fmt.Errorf("%w: %d differences: %s", ErrDiverged, len(found),
			strings.Join(found[:min(5, len(found))], "; "))
	}
	return err
}

// silence waits until all of these are offline in both stores.
func (d *demo) silence(ctx context.Context, since time.Time, ids []string) error {
	gone := make(map[string]time.Duration)
	err := d.until(ctx, "the dead to be set offline", func(ctx context.Context) (bool, error) {
		all, err := d.truth.Offlined(ctx, since)
		if err != nil {
			return false, err
		}
		for _, o := range all {
			gone[o.Mitra] = o.Silent
		}
		for _, id := range ids {
			if _, ok := gone[id]; !ok {
				return false, nil
			}
			online, err := d.rdb.SIsMember(ctx, "mitras:online", id).Result()
			if err != nil || online {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	least, most := gone[ids[0]], gone[ids[0]]
	for _, id := range ids {
		least, most = min(least, gone[id]), max(most, gone[id])
	}
	d.say("all %d are offline in Postgres and in the mirror: %.1f to %.1f s after their last heartbeat "+
		"(stale_after is %v)", len(ids), least.Seconds(), most.Seconds(), d.pace.Stale)
	return nil
}
