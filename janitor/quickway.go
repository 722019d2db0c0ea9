package janitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// quickWay is the sweep "owners": it reads the roster's heartbeats, and sweeps an owner that fell
// silent, or that left gracefully, through its reverse index. While all live it costs
// O(instances), whatever the number of ids.
type quickWay struct {
	*entries
	dry map[string]finding // of a dry run
	// This user may not UNLINK an index: batches remove their members instead.
	piecemeal bool
	// Owners whose index this user may neither UNLINK nor SREM, and when it was last read.
	stuck map[string]time.Time
}

// finding is a dry run's finding in an owner's index. Nothing of it is deleted, and reading it all
// again each second would cost Redis more than sweeping it.
type finding struct {
	at                    time.Time
	condemned, unreadable int
}

func (*quickWay) Name() string { return "owners" }

// Interval bounds how soon a silence is noticed that the last pass did not foresee.
func (*quickWay) Interval() time.Duration { return time.Second }

func (s *quickWay) Run(ctx context.Context, p *Pass) error {
	s.refused.forget(p.interval() + longestGap) // by then a full scan would have met it again
	silent, err := s.find(ctx, p)
	if err != nil || len(silent) == 0 {
		return err
	}
	// Not earlier: a hold that delays no sweep is not worth a held pass every second.
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

func (s *quickWay) find(ctx context.Context, p *Pass) (silent []string, err error) {
	roster, err := p.roster(ctx)
	if err != nil {
		return nil, err
	}
	if only := p.Owner(); only != "" { // it may have left the roster
		if roster, err = p.Liveness(ctx, []string{only}); err != nil {
			return nil, err
		}
	}
	p.addTotal(len(roster))
	p.AddScanned(len(roster))
	for id, liveness := range roster {
		switch liveness {
		case Dead:
			silent = append(silent, id)
		case Unreadable:
			p.Skip(SkipUnreadable, 1)
		case Doubted:
			p.Skip(SkipDoubted, 1)
		}
	}
	return silent, nil
}

// due returns the silent owners whose indexes this pass reads. Owners in stuck are left to the full
// scan for longestGap, or until a pass is requested. Unrequested dry runs read an index once an
// interval and repeat the other findings.
func (s *quickWay) due(p *Pass, silent []string) (due []string) {
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
	known := make(map[string]finding, len(silent)) // forgets owners that are back
	for _, owner := range silent {
		found, there := s.dry[owner]
		if !there || time.Since(found.at) >= p.interval() {
			due = append(due, owner)
			continue
		}
		known[owner] = found
		p.AddCondemned(found.condemned)
		p.Skip(SkipUnreadable, found.unreadable)
	}
	s.dry = known
	return due
}

// sweep evicts the entries in an owner's index, then removes the owner from the roster and deletes
// the index as a whole: removing a member costs Redis a third of evicting an entry. An index that
// has grown meanwhile waits for the next pass.
func (s *quickWay) sweep(
	ctx context.Context, p *Pass, owner string,
) (condemned, unreadable int, err error) {
	var (
		index = p.Layout().Devices(owner)
		b     = newBatcher(s.entries, p)
		found int
	)
	b.whole = !s.piecemeal
	defer s.at.Store(nil)
	for read, err := range guard.Members(ctx, p.Client(), index, p.paging()) {
		if redis.HasErrorPrefix(err, "WRONGTYPE ") { // kept; the full scan reports it too
			p.Skip(SkipUnreadable, 1)
			return b.condemned, 1, nil
		}
		if err != nil {
			return 0, 0, err
		}
		page := read.Items
		p.AddScanned(len(page))
		if len(page) > 0 {
			found += len(page)
			if !p.DryRun() { // the full scan handles owners without an index
				s.at.Store(&owner)
			}
		}
		for _, id := range page {
			if err := b.add(ctx, owner, id); err != nil {
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
	// A missing index proves nothing: it may be off, or lost.
	if found == 0 && !s.isEmpty(owner, p.silentSince(owner)) {
		return 0, 0, nil
	}
	err = p.forget(ctx, owner, found, index)
	if !errors.Is(err, ErrRefused) {
		return 0, 0, err
	}
	if !s.piecemeal {
		s.piecemeal = true
		p.Log().Warn("emptying dead owners' indexes batch by batch, at a higher cost: allow UNLINK in the ACL")
		return 0, 0, nil
	}
	s.keep(p, owner, err)
	return 0, 0, nil
}

// keep notes an owner whose entries were swept but whose index stays. Reading that index each
// second would fill the log with empty records.
func (s *quickWay) keep(p *Pass, owner string, err error) {
	if s.stuck == nil {
		s.stuck = map[string]time.Time{}
		p.Log().Warn("cannot empty dead owners' indexes; the owners stay on the roster: allow UNLINK in the ACL",
			"owner", owner, "error", err)
	}
	s.stuck[owner] = time.Now()
	p.Skip(SkipUnreadable, 1)
}
