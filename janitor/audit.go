package janitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	sweepRegistry = "registry"
	// runIDFresh is how often a scan under way asks whether it still talks to the same server.
	runIDFresh = time.Second
	// scanStarts is how often a scan may begin anew in one pass.
	scanStarts = 3
	// yieldFor is how long a yielding audit waits before it looks again.
	yieldFor = 50 * time.Millisecond
)

var errRestarted = errors.New("janitor: server changed during the scan")

// registrySweep is the audit: it scans all entries, and evicts those whose owner is dead, whoever
// that was and whether or not an index or the roster remembers it.
type registrySweep struct{}

func (registrySweep) Name() string            { return sweepRegistry }
func (registrySweep) Interval() time.Duration { return 0 }

func (s registrySweep) Pass(ctx context.Context, p *Pass) error {
	if err := p.Ready(ctx); err != nil {
		return err
	}
	p.scanning = true
	var (
		left map[string]bool
		err  error
	)
	for range scanStarts {
		left, err = s.scan(ctx, p, left)
		if len(left) == 0 && !errors.Is(err, errRestarted) {
			break
		}
	}
	return err
}

// walk is one way through the whole hash.
type walk struct {
	p      *Pass
	basket *basket
	only   map[string]bool // the owners that it is about; nil: all
	later  map[string]bool // the dead whose entries it left for another walk
	// The dead on the roster of whom it met no entry, and since when they were silent.
	empty map[string]time.Time
}

// scan goes through the whole hash once. A cursor means something only to the server that gave it: when
// another has taken its place, errRestarted. It leaves the entries of the dead that no roster names,
// since the brake can judge them only when it has met every owner. It returns these owners, for a
// second scan that is about them only.
func (s registrySweep) scan(ctx context.Context, p *Pass, only map[string]bool) (later map[string]bool, err error) {
	server, err := s.serverID(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := p.expect(ctx, redis.Pipeliner.HLen, p.Layout().Registry()); err != nil {
		return nil, err
	}
	asked := time.Now()
	w := &walk{p: p, basket: newBasket(p), only: only, later: map[string]bool{}, empty: p.t.watch.dead()}
	for cursor := uint64(0); ; {
		if err := p.yield(ctx); err != nil {
			return nil, err
		}
		var page []string
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			page, cursor, err = p.Client().HScan(ctx, p.Layout().Registry(), cursor, "", int64(p.PageSize())).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := w.page(ctx, page); err != nil {
			return nil, err
		}
		if cursor == 0 || time.Since(asked) >= runIDFresh {
			now, err := s.serverID(ctx, p)
			if err != nil {
				return nil, err
			}
			if now != server {
				return nil, errRestarted
			}
			asked = time.Now()
		}
		if cursor == 0 {
			break
		}
	}
	if err := w.basket.empty(ctx); err != nil {
		return nil, err
	}
	if p.Owner() == "" {
		p.t.watch.scanned(w.empty)
	}
	return w.later, nil
}

// yield lets the quick way finish: what it sweeps need not be scanned meanwhile, and both share Redis' time. It takes half an
// interval of a pass at most, so that the quick way cannot keep the audit from whom it does not find.
func (p *Pass) yield(ctx context.Context) error {
	most := p.t.j.cfg.Interval / 2
	for p.t.busy() && p.yielded < most && !p.DryRun() {
		d := min(yieldFor, most-p.yielded)
		if !wait.For(ctx, d) {
			return context.Cause(ctx)
		}
		p.yielded += d
	}
	return nil
}

// page judges the owners of one page and puts what names a dead one into the basket.
func (w *walk) page(ctx context.Context, page []string) error {
	p := w.p
	p.Scanned(len(page) / 2)
	entries := make(map[string][]string) // by owner
	for i := 0; i+1 < len(page); i += 2 {
		imei, owner := page[i], page[i+1]
		delete(w.empty, owner)
		if one := p.Owner(); (one == "" || one == owner) && (w.only == nil || w.only[owner]) {
			entries[owner] = append(entries[owner], imei)
		}
	}
	liveness, err := p.Judge(ctx, slices.Collect(maps.Keys(entries)))
	if err != nil {
		return err
	}
	first := w.only == nil && p.Owner() == "" && !p.DryRun()
	for owner, imeis := range entries {
		switch {
		case liveness[owner] == Unreadable:
			p.Spared(SparedUnreadable, len(imeis))
		case liveness[owner] == Alive:
		case p.t.takenUp(owner) && !p.DryRun() && p.Owner() == "":
			// what its index misses, the next audit finds
		case first && !p.t.watch.listed(owner):
			w.later[owner] = true
		default:
			for _, imei := range imeis {
				if err := w.basket.add(ctx, owner, imei); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// serverID asks which life of which server this is; "" where that is not offered, and then the check
// is off.
func (registrySweep) serverID(ctx context.Context, p *Pass) (id string, err error) {
	err = p.Call(ctx, func(ctx context.Context) error {
		info, err := p.Client().Info(ctx, "server").Result()
		if reply := redis.Error(nil); errors.As(err, &reply) { // refused, or no such section
			return nil
		}
		id = runID(info)
		return err
	})
	return id, err
}

// runID is the identity of the server's present life; "" where that is not offered.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}
