package registry

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
)

// quickWay is the sweep "owners": it looks at the roster's heartbeats, and sweeps an owner that
// fell silent or said goodbye through its reverse index. While all live it costs O(instances),
// however many devices there are.
type quickWay struct {
	*sweeps
	dry map[string]dryLook // by owner: what was found in its index; nothing of it goes
}

func (*quickWay) Name() string { return "owners" }

// Interval is how soon a silence is noticed that no look foresaw.
func (*quickWay) Interval() time.Duration { return time.Second }

func (s *quickWay) Run(ctx context.Context, p *janitor.Pass) error {
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
		if err := s.look(ctx, p, owner); err != nil {
			return err
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

// sweep evicts what an owner's index names, and takes the owner off the roster when nothing is left
// there. It returns how many entries were condemned, and how many could not be read.
func (s *quickWay) sweep(ctx context.Context, p *janitor.Pass, owner string) (condemned, unreadable int, err error) {
	var (
		index = p.Layout().Devices(owner)
		b     = newBatcher(p, s.evicted)
		found bool
	)
	for page, err := range p.SetPages(ctx, index) {
		if redis.HasErrorPrefix(err, "WRONGTYPE ") { // kept, and the full scan says so too
			p.Skip(janitor.SkipUnreadable, 1)
			return b.condemned, 1, nil
		}
		if err != nil {
			return 0, 0, err
		}
		p.AddScanned(len(page))
		if !found && len(page) > 0 {
			found = true
			if !p.DryRun() { // an owner without an index is the full scan's
				defer s.takeUp(owner)()
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
		return b.condemned, b.unreadable, err
	}
	// That there is no index says nothing: it may be off, or lost. Off the roster the mass-failure
	// breaker would not know this owner any more.
	if !found && !s.isEmpty(owner, p.Silent()) {
		return 0, 0, nil
	}
	return 0, 0, p.Forget(ctx, owner, index)
}

// dryLook is what a dry run found in an owner's index. Reading all of it again each second would
// cost Redis more than sweeping it.
type dryLook struct {
	at                    time.Time
	condemned, unreadable int
}

// due returns the silent whose indexes this pass looks at: all, unless this janitor only ever
// judges and nobody asked for the pass; then those that were not looked at for an interval. What is
// known of the others goes into the report again, so that it says of all what would go.
func (s *quickWay) due(p *janitor.Pass, silent []string) (due []string) {
	if !p.DryRun() || p.Requested() {
		return silent
	}
	known := make(map[string]dryLook, len(silent)) // who is not silent any more is forgotten
	for _, owner := range silent {
		look, there := s.dry[owner]
		if !there || time.Since(look.at) >= p.Interval() {
			due = append(due, owner)
			continue
		}
		known[owner] = look
		p.AddCondemned(look.condemned)
		p.Skip(janitor.SkipUnreadable, look.unreadable)
	}
	s.dry = known
	return due
}

// look sweeps an owner, and remembers what a dry run found.
func (s *quickWay) look(ctx context.Context, p *janitor.Pass, owner string) error {
	at := time.Now()
	condemned, unreadable, err := s.sweep(ctx, p, owner)
	if err == nil && p.DryRun() && s.dry != nil {
		s.dry[owner] = dryLook{at, condemned, unreadable}
	}
	return err
}
