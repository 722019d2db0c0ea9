package sweeps

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// yieldFor is the pause between two checks of a full scan that yields.
	yieldFor = 50 * time.Millisecond
	// leftMost bounds the owners that a scan leaves alone. There are more only in a registry full
	// of rubbish.
	leftMost = 20_000
	// plainApart is the least time between two scans for owners that write no records.
	plainApart = 30 * time.Second
)

// fullScan is the sweep "registry": it reads all entries, and evicts those of dead owners,
// including owners that no index or roster knows. It runs when it can find something; see due.
type fullScan struct {
	*sweeps
	scans due
}

func (*fullScan) Name() string { return "registry" }

func (*fullScan) Interval() time.Duration { return 0 }

func (*fullScan) FullScans() {}

func (s *fullScan) Run(ctx context.Context, p *janitor.Pass) error {
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	why, err := s.whyDue(ctx, p)
	if err != nil {
		return err
	}
	defer s.follow(p)
	if why == "" {
		p.NotDue()
		return nil
	}
	p.BeginFullScan(why)
	w := &scan{fullScan: s, p: p}
	all := p.Owner() == "" && !p.DryRun()
	if !p.DryRun() {
		w.yield = p.Interval() / 2
	}
	if all {
		s.scans.begin(p)
	}
	if err = w.walk(ctx); err == nil && all {
		p.NextFullScan(s.scans.begun.Add(s.scans.end(p)))
	}
	return err
}

// follow requests the next pass for when an owner that writes no records may be dead. Only a full
// scan finds its entries.
func (s *fullScan) follow(p *janitor.Pass) {
	p.RunAgain(time.Time{}) // not at the next fall of any other
	if fall := p.NextPlainFall(s.scans.begun); !fall.IsZero() {
		least := s.scans.begun.Add(min(plainApart, p.Interval()))
		if fall.Before(least) {
			fall = least
		}
		p.RunAgain(fall)
	}
}

// scan is one pass.
type scan struct {
	*fullScan
	p     *janitor.Pass
	yield time.Duration // how long it may still wait for the quick way
	// The dead whose entries this walk has not met, and since when they are silent.
	silent  map[string]time.Time
	batcher *batcher
}

// walk reads the hash once. A cursor is valid only on the server that issued it: if that is
// replaced, a hold begins, and after it the next scan is due.
func (w *scan) walk(ctx context.Context) error {
	p, key := w.p, w.p.Layout().Registry()
	if err := expect(ctx, p, redis.Pipeliner.HLen, key); err != nil {
		return err
	}
	w.silent, w.batcher = p.Silent(), newBatcher(w.sweeps, p)
	for page, err := range p.FieldPages(ctx, key) { // HSCAN
		if err != nil {
			return err
		}
		p.Skip(janitor.SkipUnreadable, page.Left)
		if err := w.page(ctx, page.Items); err != nil {
			return err
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
	if err := w.batcher.flush(ctx); err != nil {
		return err
	}
	if p.Owner() == "" {
		w.scanned(w.silent, p.Silent())
		p.Empty(w.silent)
	}
	return nil
}

// wait gives way to the quick way, whose entries need not be scanned, for at most half an interval
// per pass: it must not keep the full scan from owners that only the scan finds.
func (w *scan) wait(ctx context.Context) error {
	for w.at.Load() != nil && w.yield > 0 {
		d := min(yieldFor, w.yield)
		if !wait.For(ctx, d) {
			return context.Cause(ctx)
		}
		w.yield -= d
	}
	return nil
}

// page judges the owners of a page's entries, each once a pass, and condemns those of the dead.
func (w *scan) page(ctx context.Context, page []string) error {
	p := w.p
	p.AddScanned(len(page) / 2)
	entries := make(map[string][]string)
	for i := 1; i < len(page); i += 2 {
		id, owner := page[i-1], page[i]
		delete(w.silent, owner)
		if only := p.Owner(); only == "" || only == owner {
			entries[owner] = append(entries[owner], id)
		}
	}
	liveness, err := p.Liveness(ctx, slices.Collect(maps.Keys(entries)))
	if err != nil {
		return err
	}
	all := p.Owner() == "" && !p.DryRun()
	swept := w.at.Load()
	for owner, ids := range entries {
		switch liveness[owner] {
		case janitor.Unreadable:
			p.Skip(janitor.SkipUnreadable, len(ids))
		case janitor.Doubted:
			p.Skip(janitor.SkipDoubted, len(ids))
		case janitor.Dead:
			if all && swept != nil && *swept == owner {
				continue // the next full scan finds entries that its index lacks
			}
			for _, id := range ids {
				if err := w.batcher.add(ctx, owner, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
