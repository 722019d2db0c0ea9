package sweeps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// runIDFresh is how often a running scan checks that it still talks to the same server.
	runIDFresh = time.Second
	// scanStarts is how often one pass may start its scan afresh.
	scanStarts = 3
	// yieldFor is the pause between two checks of a full scan that yields.
	yieldFor = 50 * time.Millisecond
	// metMost bounds the owners that a scan remembers. There are more only in a registry full of
	// rubbish.
	metMost = 20_000
)

var errRestarted = errors.New("registry: server changed during the full scan")

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
	why, counted, err := s.whyDue(ctx, p)
	if err != nil {
		return err
	}
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
		s.scans.begin(p, counted)
	}
	for range scanStarts {
		err := w.walk(ctx)
		if err == nil && (len(w.later) == 0 || w.second) {
			if all {
				w.over()
			}
			return nil
		}
		if err != nil && !errors.Is(err, errRestarted) {
			return err
		}
	}
	return errRestarted
}

// scan is one pass. Its first walk through the hash leaves the entries of dead owners that are not
// on the roster: the mass-failure breaker can judge these only once every owner is known. A second
// walk then evicts them, or, if there are more than metMost, all the dead.
type scan struct {
	*fullScan
	p      *janitor.Pass
	yield  time.Duration // how long it may still wait for the quick way
	second bool
	later  map[string]bool // dead owners left for the second walk; nil: start afresh
	crowd  bool            // there are more than later holds
	// The silent owners on the roster whose entries this walk has not met, and since when they are
	// silent.
	silent  map[string]time.Time
	batcher *batcher

	met map[string]bool // owners that the first walk met, and whether they were on the roster
}

func (w *scan) over() {
	p, d := w.p, &w.scans
	gap := d.end(p, w.met)
	p.NextFullScan(d.begun.Add(gap))
}

// A cursor is valid only on the server that issued it: if that was replaced, walk returns
// errRestarted.
func (w *scan) walk(ctx context.Context) error {
	p := w.p
	server, err := w.serverID(ctx)
	if err != nil {
		return err
	}
	if err := expect(ctx, p, redis.Pipeliner.HLen, p.Layout().Registry()); err != nil {
		return err
	}
	asked := time.Now()
	if w.second = len(w.later) > 0; !w.second {
		w.met, w.later, w.crowd = map[string]bool{}, map[string]bool{}, false
	}
	w.silent, w.batcher = p.Silent(), newBatcher(w.sweeps, p)
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		if err := w.wait(ctx); err != nil {
			return err
		}
		var page guard.Page
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			key, count := p.Layout().Registry(), int64(p.PageSize())
			page, err = guard.HScan(ctx, p.Client(), key, cursor, count)
			return err
		})
		if err != nil {
			return err
		}
		cursor = page.Next
		p.Skip(janitor.SkipUnreadable, page.Left)
		if err := w.page(ctx, page.Items); err != nil {
			return err
		}
		if cursor == 0 || time.Since(asked) >= runIDFresh {
			switch now, err := w.serverID(ctx); {
			case err != nil:
				return err
			case now != server:
				w.later = nil
				return errRestarted
			}
			asked = time.Now()
		}
	}
	if err := w.batcher.flush(ctx); err != nil {
		return err
	}
	if p.Owner() == "" {
		p.EndFullScan()
		w.scanned(w.silent, p.Silent())
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

func (w *scan) page(ctx context.Context, page []string) error {
	p := w.p
	p.AddScanned(len(page) / 2)
	entries := make(map[string][]string)
	for entry := range slices.Chunk(page, 2) {
		if len(entry) < 2 {
			break
		}
		id, owner := entry[0], entry[1]
		delete(w.silent, owner)
		if !w.second {
			w.meet(owner)
		}
		if one := p.Owner(); (one == "" || one == owner) && (!w.second || w.crowd || w.later[owner]) {
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
		switch {
		case liveness[owner] == janitor.Unreadable:
			p.Skip(janitor.SkipUnreadable, len(ids))
		case liveness[owner] == janitor.Alive:
		case all && swept != nil && *swept == owner:
			// the next full scan finds entries that its index lacks
		case all && !w.second && !p.Listed(owner):
			w.leave(owner)
		default:
			for _, id := range ids {
				if err := w.batcher.add(ctx, owner, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *scan) meet(owner string) {
	if _, met := w.met[owner]; !met && len(w.met) < metMost {
		w.met[owner] = w.p.Listed(owner)
	}
}

func (w *scan) leave(owner string) {
	if w.crowd = w.crowd || len(w.later) >= metMost && !w.later[owner]; !w.crowd {
		w.later[owner] = true
	}
}

// serverID is "" if the server does not offer it, which disables the check.
func (w *scan) serverID(ctx context.Context) (id string, err error) {
	err = w.p.Call(ctx, func(ctx context.Context) error {
		keys := []string{w.p.Layout().Registry()}
		id, err = serverIDScript.RunRO(ctx, w.p.Client(), keys).Text()
		return err
	})
	return id, err
}
