package console

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// count writes how large the fleet is, each minute while this replica leads.
func (s *HTTP) count(ctx context.Context) {
	key := s.cfg.Layout.Minutes()
	failing := streak.New(s.cfg.Logger, "cannot write the minutes; nobody is told that the fleet shrank",
		"the minutes are written", "key", key, "allow", "XADD")
	var at time.Time
	for wait.For(ctx, aboutLook) {
		st := s.cfg.Status().common()
		if !st.Janitor.Leading || !at.IsZero() && time.Since(at) < time.Minute {
			continue
		}
		err := s.countOnce(ctx, st.Instance)
		if ctx.Err() != nil {
			return
		}
		// The registry reports that Redis is down.
		if err == nil || inspect.Refused(err) || redis.HasErrorPrefix(err, "WRONGTYPE ") {
			failing.Note(err)
		}
		at = time.Now() // also after a failure
	}
}

func (s *HTTP) countOnce(ctx context.Context, own string) error {
	ctx, cancel := context.WithTimeout(ctx, fleetCall)
	defer cancel()
	r, err := s.fleet.now(ctx, fleetCall)
	if err != nil {
		return err
	}
	if p := r.status.Partitions; p != nil && !slices.Contains(p.Leads(own), 0) {
		return nil // one leader counts for all
	}
	m := timeline.Minute{Entries: r.status.Entries}
	for _, in := range r.status.Instances {
		if in.Alive {
			m.Living++
		}
	}
	return timeline.AddMinute(ctx, s.cfg.Client, s.cfg.Layout.Minutes(), m)
}
