package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
)

// quickWay is the sweep "owners": it reads the roster's heartbeats, and sweeps an owner that fell
// silent or said goodbye through its reverse index. While all live it costs O(instances), however
// many devices there are.
type quickWay struct {
	*sweeps
	dry map[string]finding // of a dry run, by owner
	// This user may not UNLINK an index: each batch takes out of it what it judged.
	piecemeal bool
	// Owners whose index this user may neither UNLINK nor SREM, and when it was last read.
	stuck map[string]time.Time
}

// finding is what a dry run found in an owner's index. Nothing of it goes; to read all of it again
// each second would cost Redis more than to sweep it.
type finding struct {
	at                    time.Time
	condemned, unreadable int
}

func (*quickWay) Name() string { return "owners" }

// Interval is how soon a silence is noticed that the last pass did not foresee.
func (*quickWay) Interval() time.Duration { return time.Second }

func (s *quickWay) Run(ctx context.Context, p *janitor.Pass) error {
	s.refused.forget(p.Interval() + longestGap) // by then a full scan would have met it again
	silent, err := s.find(ctx, p)
	if err != nil || len(silent) == 0 {
		return err
	}
	// Only now: a hold that keeps nothing from being swept is not worth a held pass a second.
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	silent = s.due(p, silent)
	indexes := make([]string, len(silent))
	for i, owner := range silent {
		indexes[i] = p.Layout().Devices(owner)
	}
	if err := expect(ctx, p, redis.Pipeliner.SCard, indexes...); err != nil {
		return err
	}
	for _, owner := range silent {
		found := finding{at: time.Now()}
		found.condemned, found.unreadable, err = s.sweep(ctx, p, owner)
		if err != nil {
			return err
		}
		if p.DryRun() && s.dry != nil {
			s.dry[owner] = found
		}
	}
	return nil
}

// find returns the silent owners.
func (s *quickWay) find(ctx context.Context, p *janitor.Pass) (silent []string, err error) {
	roster, err := p.Roster(ctx)
	if err != nil {
		return nil, err
	}
	if only := p.Owner(); only != "" { // also one that is not on the roster any more
		if roster, err = p.Liveness(ctx, []string{only}); err != nil {
			return nil, err
		}
	}
	p.AddTotal(len(roster))
	p.AddScanned(len(roster))
	for id, liveness := range roster {
		switch liveness {
		case janitor.Dead:
			silent = append(silent, id)
		case janitor.Unreadable:
			p.Skip(janitor.SkipUnreadable, 1)
		}
	}
	return silent, nil
}

// due returns the silent owners whose indexes this pass reads. Those that cannot be emptied are
// left to the full scan for as long as that may rest, or until somebody asks for a pass. The others
// are read each time, unless this janitor is set to dry runs and nobody asked for the pass. Then it
// is those whose index was not read for an interval. The report repeats what is known of the
// others, so that it is complete.
func (s *quickWay) due(p *janitor.Pass, silent []string) (due []string) {
	there := make(map[string]bool, len(silent))
	for _, owner := range silent {
		there[owner] = true
	}
	maps.DeleteFunc(s.stuck, func(owner string, read time.Time) bool {
		return time.Since(read) >= longestGap || p.Requested() || !there[owner]
	})
	silent = slices.DeleteFunc(silent, func(owner string) bool { _, stuck := s.stuck[owner]; return stuck })
	if !p.DryRun() || p.Requested() {
		return silent
	}
	known := make(map[string]finding, len(silent)) // an owner that is not silent any more is forgotten
	for _, owner := range silent {
		found, there := s.dry[owner]
		if !there || time.Since(found.at) >= p.Interval() {
			due = append(due, owner)
			continue
		}
		known[owner] = found
		p.AddCondemned(found.condemned)
		p.Skip(janitor.SkipUnreadable, found.unreadable)
	}
	s.dry = known
	return due
}

// sweep evicts what an owner's index names, then takes the owner off the roster and the index with
// it: to take a member out costs Redis a third of what it costs to evict the entry. An index that
// has grown meanwhile stays for the next pass. It returns how many entries were condemned, and how
// many could not be read.
func (s *quickWay) sweep(
	ctx context.Context, p *janitor.Pass, owner string,
) (condemned, unreadable int, err error) {
	var (
		index = p.Layout().Devices(owner)
		b     = newBatcher(s.sweeps, p)
		found int
	)
	b.whole = !s.piecemeal
	defer s.at.Store(nil)
	for page, err := range p.SetPages(ctx, index) {
		if redis.HasErrorPrefix(err, "WRONGTYPE ") { // kept, and the full scan says so too
			p.Skip(janitor.SkipUnreadable, 1)
			return b.condemned, 1, nil
		}
		if err != nil {
			return 0, 0, err
		}
		p.AddScanned(len(page))
		if len(page) > 0 {
			found += len(page)
			if !p.DryRun() { // an owner without an index is the full scan's
				s.at.Store(&owner)
			}
		}
		for _, imei := range page {
			if err := b.add(ctx, owner, imei); err != nil {
				return 0, 0, err
			}
		}
		if b.left[owner] {
			break
		}
	}
	if err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {
		return b.condemned, 0, err
	}
	// That there is no index says nothing: it may be off, or lost. Off the roster the mass-failure
	// breaker would not know this owner any more.
	if found == 0 && !s.isEmpty(owner, p.SilentSince(owner)) {
		return 0, 0, nil
	}
	err = p.Forget(ctx, owner, found, index)
	if !errors.Is(err, janitor.ErrRefused) {
		return 0, 0, err
	}
	if !s.piecemeal {
		s.piecemeal = true
		p.Log().Warn("indexes of the dead are emptied piece by piece, at a higher cost: allow UNLINK in the ACL")
		return 0, 0, nil
	}
	s.keep(p, owner, err)
	return 0, 0, nil
}

// keep notes an owner whose entries were swept and whose index stays. Other owners are swept all
// the same. To read that index each second would fill the log with records of nothing.
func (s *quickWay) keep(p *janitor.Pass, owner string, err error) {
	if s.stuck == nil { // logged once
		s.stuck = map[string]time.Time{}
		p.Log().Warn("indexes of the dead cannot be emptied, their owners stay on the roster: allow UNLINK in the ACL",
			"owner", owner, "error", err)
	}
	s.stuck[owner] = time.Now()
	p.Skip(janitor.SkipUnreadable, 1)
}
