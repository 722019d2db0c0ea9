package janitor

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
)

const (
	sweepOwners = "owners"
	// ownersInterval: how soon a silence is noticed that no look foresaw.
	ownersInterval = time.Second
)

// ownersSweep is the quick way: it looks at the roster's heartbeats, and sweeps whoever fell silent or said
// goodbye through its reverse index. While all live it costs O(instances), however many devices there are.
type ownersSweep struct {
	every time.Duration
	dry   dryLooks
}

func (*ownersSweep) Name() string              { return sweepOwners }
func (s *ownersSweep) Interval() time.Duration { return s.every }

func (s *ownersSweep) Pass(ctx context.Context, p *Pass) error {
	fallen, err := s.find(ctx, p)
	p.report.next = p.t.watch.nextExpiry() // a look tells who will fall if nothing more is heard: the next pass is there in time
	if err != nil || len(fallen) == 0 {
		return err
	}
	// Only now: a doubt that keeps nothing from being swept is not worth a held pass a second.
	if err := p.Ready(ctx); err != nil {
		return err
	}
	fallen = s.dry.due(p, fallen)
	indexes := make([]string, len(fallen))
	for i, owner := range fallen {
		indexes[i] = p.Layout().Devices(owner)
	}
	if err := p.expect(ctx, redis.Pipeliner.SCard, indexes...); err != nil {
		return err
	}
	for _, owner := range fallen {
		if err := s.dry.look(p, owner, func() error { return s.sweep(ctx, p, owner) }); err != nil {
			return err
		}
	}
	return nil
}

// find returns the silent owners.
func (*ownersSweep) find(ctx context.Context, p *Pass) ([]string, error) {
	roster := map[string]Liveness{}
	err := p.Call(ctx, func(ctx context.Context) (err error) {
		roster, err = p.t.watch.look(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if only := p.Owner(); only != "" { // also one that is not on the roster any more
		if roster, err = p.Judge(ctx, []string{only}); err != nil {
			return nil, err
		}
	}
	p.Expect(len(roster))
	p.Scanned(len(roster))
	var fallen []string
	for id, liveness := range roster {
		switch liveness {
		case Dead:
			fallen = append(fallen, id)
		case Unreadable:
			p.Spared(SparedUnreadable, 1)
		}
	}
	return fallen, nil
}

// sweep evicts what an owner's index names, and takes the owner off the roster when nothing is left there.
func (*ownersSweep) sweep(ctx context.Context, p *Pass, owner string) error {
	var (
		index = p.Layout().Devices(owner)
		b     = newBasket(p)
		taken bool
	)
	pages, stop := p.t.members(ctx, index)
	defer stop()
	for page := range pages {
		if failedInside(page.err) { // no set: kept, and the audit says so too
			p.Spared(SparedUnreadable, 1)
			return nil
		}
		if page.err != nil {
			return page.err
		}
		p.Scanned(len(page.items))
		if !taken && len(page.items) > 0 && !p.DryRun() { // an owner without an index is the audit's
			taken = true
			defer p.t.takeUp(owner)()
		}
		for _, imei := range page.items {
			if err := b.add(ctx, owner, imei); err != nil {
				return err
			}
		}
		if b.left[owner] {
			break
		}
	}
	if ctx.Err() != nil { // the pages may have ended for that
		return context.Cause(ctx)
	}
	if err := b.empty(ctx); err != nil || b.left[owner] || p.DryRun() {
		return err
	}
	if !taken && !p.t.watch.isEmpty(owner) {
		// That there is no index says nothing: it may be off, or lost. Off the roster the brake would
		// not know this owner any more.
		return nil
	}
	if err := p.t.permit(ctx, owner); err != nil {
		return err
	}
	return p.forget(ctx, owner)
}

// forget takes an owner off the roster, last of all. One that has come back, or whose index has grown again,
// stays.
func (p *Pass) forget(ctx context.Context, owner string) error {
	t := p.t
	return p.Call(ctx, func(ctx context.Context) error {
		verdict, err := t.j.guard.Forget(ctx, t.watch.lease, owner)
		switch {
		case err != nil:
			return err
		case verdict == guard.Fenced:
			t.end(ErrFenced)
			return ErrFenced
		case verdict == guard.Done:
			t.watch.swept(owner)
		}
		return nil
	})
}
