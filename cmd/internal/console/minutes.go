package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const aMinute = time.Minute

type counter struct {
	at   time.Time         // of the last count; zero: none in this term
	seen map[string]uint64 // registrations of each life
}

// count writes what the fleet has and did while this replica leads.
func (s *HTTP) count(ctx context.Context) {
	key := s.cfg.Layout.Minutes()
	failing := streak.New(s.cfg.Logger, "cannot write the minutes; the page's chart will lack them",
		"the minutes are written", "key", key, "allow", "XADD")
	var c counter
	for wait.For(ctx, aboutLook) {
		switch {
		case !s.cfg.Status().common().Janitor.Leading:
			c = counter{}
			continue
		case !c.at.IsZero() && time.Since(c.at) < aMinute:
			continue
		}
		err := s.countOnce(ctx, &c)
		if ctx.Err() != nil {
			return
		}
		// The registry reports that Redis is down.
		if err == nil || inspect.Refused(err) || redis.HasErrorPrefix(err, "WRONGTYPE ") {
			failing.Note(err)
		}
		c.at = time.Now() // also after a failure
	}
}

func (s *HTTP) countOnce(ctx context.Context, c *counter) error {
	ctx, cancel := context.WithTimeout(ctx, fleetCall)
	defer cancel()
	r, err := s.fleet.now(ctx)
	if err != nil {
		return err
	}
	if r.err != nil {
		return r.err
	}
	if p := r.status.Partitions; p != nil && !slices.Contains(p.Leads(s.cfg.Status().common().Instance), 0) {
		return nil // one leader counts for all
	}
	m := timeline.Minute{Entries: r.status.Entries, Registered: -1}
	told, err := s.described(ctx, r.status.Instances)
	if err != nil {
		return err
	}
	if len(told) > 0 { // otherwise this user may not read them
		m.Registered = c.registered(r.status.Instances, told)
	}
	return timeline.AddMinute(ctx, s.cfg.Client, s.cfg.Layout.Minutes(), m)
}

func (s *HTTP) described(ctx context.Context, all []inspect.Instance) (map[string]inspect.About, error) {
	told := make(map[string]inspect.About, len(all))
	for page := range slices.Chunk(all, 100) {
		ids := make([]string, len(page))
		for i, in := range page {
			ids[i] = in.ID
		}
		some, err := s.fleet.watch.Abouts(ctx, ids)
		if err != nil {
			return nil, err
		}
		maps.Copy(told, some)
	}
	return told, nil
}

// registered is since the last count, or -1 at the first. An instance is counted from its start, or
// from when it was first seen.
func (c *counter) registered(all []inspect.Instance, told map[string]inspect.About) int64 {
	sum, seen := int64(0), make(map[string]uint64, len(told))
	for _, in := range all {
		about, ok := told[in.ID]
		if !ok {
			continue
		}
		life := in.ID + "/" + about.Boot
		before, known := c.seen[life]
		if known || !in.Started.IsZero() && in.Started.After(c.at) {
			sum += int64(about.Registered - min(before, about.Registered))
		}
		seen[life] = about.Registered
	}
	first := c.seen == nil
	c.seen = seen
	if first {
		return -1
	}
	return sum
}
