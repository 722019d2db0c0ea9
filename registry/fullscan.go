package registry

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
	// runIDFresh is how often a scan under way asks whether it still talks to the same server.
	runIDFresh = time.Second
	// scanStarts is how often a scan may begin anew in one pass.
	scanStarts = 3
	// yieldFor is how long a yielding full scan waits before it asks again.
	yieldFor = 50 * time.Millisecond
	// metMost bounds the owners of which a scan keeps something. There are more only where the
	// registry is full of rubbish.
	metMost = 20_000
)

var errRestarted = errors.New("registry: server changed during the full scan")

// fullScan is the sweep "registry": it scans all entries, and evicts those whose owner is dead,
// also an owner that no index and no roster remembers. It reads them when it can find something;
// see due.
type fullScan struct {
	*sweeps
	scans due
}

func (*fullScan) Name() string { return "registry" }

// Interval is the janitor's.
func (*fullScan) Interval() time.Duration { return 0 }

// FullScans makes it a janitor.FullScanner.
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
				w.over(ctx)
			}
			return nil
		}
		if err != nil && !errors.Is(err, errRestarted) {
			return err
		}
	}
	return errRestarted
}

// scan is one pass. It walks through the whole hash once, and leaves the entries of the dead that
// no roster names: the mass-failure breaker can judge them only when the scan has found every
// owner. If there are any it walks again, for them only; if there are more than metMost, for all
// the dead.
type scan struct {
	*fullScan
	p      *janitor.Pass
	yield  time.Duration   // for so long it may yet wait for the quick way
	second bool            // this walk is the second
	later  map[string]bool // the dead whose entries the first walk left for the second; nil: begin anew
	crowd  bool            // there are more of them
	// The dead on the roster of whom this walk found no entry yet, and since when they are silent.
	silent  map[string]time.Time
	batcher *batcher

	// What the first walk met, by owner, and how long it took.
	met  map[string]*scanned
	took time.Duration
}

// over ends a scan of all owners that went well.
func (w *scan) over(ctx context.Context) {
	p, d := w.p, &w.scans
	gap := d.end(p, w.met)
	w.publish(ctx, 2*gap)
	p.NextFullScan(d.begun.Add(gap))
}

// walk goes through the hash once. A cursor means something only to the server that gave it: if
// another has taken its place, the walk ends with errRestarted.
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
	begun := asked
	if w.second = len(w.later) > 0; !w.second {
		w.met, w.later, w.crowd = map[string]*scanned{}, map[string]bool{}, false
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
	if !w.second {
		w.took = time.Since(begun)
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

// wait lets the quick way finish: what it sweeps need not be scanned meanwhile, and both share
// Redis' time. It takes half an interval of a pass at most, so that the quick way cannot keep the
// full scan from the owners that the quick way does not find.
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

// page judges the owners of one page, and hands over the entries that name a dead one.
func (w *scan) page(ctx context.Context, page []string) error {
	p := w.p
	p.AddScanned(len(page) / 2)
	entries := make(map[string][]string) // by owner
	for entry := range slices.Chunk(page, 2) {
		if len(entry) < 2 {
			break
		}
		imei, owner := entry[0], entry[1]
		delete(w.silent, owner)
		if !w.second {
			w.meet(owner, imei)
		}
		if one := p.Owner(); (one == "" || one == owner) && (!w.second || w.crowd || w.later[owner]) {
			entries[owner] = append(entries[owner], imei)
		}
	}
	liveness, err := p.Liveness(ctx, slices.Collect(maps.Keys(entries)))
	if err != nil {
		return err
	}
	all := p.Owner() == "" && !p.DryRun()
	swept := w.at.Load()
	for owner, imeis := range entries {
		switch {
		case liveness[owner] == janitor.Unreadable:
			p.Skip(janitor.SkipUnreadable, len(imeis))
		case liveness[owner] == janitor.Alive:
		case all && swept != nil && *swept == owner:
			// what its index misses, the next full scan finds
		case all && !w.second && !p.Listed(owner):
			w.leave(owner)
		default:
			for _, imei := range imeis {
				if err := w.batcher.add(ctx, owner, imei); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// meet notes an entry.
func (w *scan) meet(owner, imei string) {
	m := w.met[owner]
	if m == nil {
		if len(w.met) == metMost {
			return
		}
		m = &scanned{listed: w.p.Listed(owner)}
		w.met[owner] = m
	}
	m.count++
	m.digest.add(imei)
}

// leave leaves a dead owner for the second walk.
func (w *scan) leave(owner string) {
	if w.crowd = w.crowd || len(w.later) >= metMost && !w.later[owner]; !w.crowd {
		w.later[owner] = true
	}
}

// serverID asks the server that has the registry for the identity of its present life; "" where
// that is not offered, and then the check is off.
func (w *scan) serverID(ctx context.Context) (id string, err error) {
	err = w.p.Call(ctx, func(ctx context.Context) error {
		keys := []string{w.p.Layout().Registry()}
		id, err = serverIDScript.RunRO(ctx, w.p.Client(), keys).Text()
		return err
	})
	return id, err
}
