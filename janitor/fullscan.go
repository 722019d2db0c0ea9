package janitor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
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
	*entries
	scans due
}

func (*fullScan) Name() string { return "registry" }

func (*fullScan) Interval() time.Duration { return 0 }

// FullScans marks sweeps that make full scans. If their passes fail for three intervals, the leader
// resigns.
func (*fullScan) FullScans() {}

func (s *fullScan) Run(ctx context.Context, p *Pass) error {
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	why, err := s.whyDue(ctx, p)
	if err != nil {
		return err
	}
	defer s.follow(p)
	if why == "" {
		p.idle = true
		return nil
	}
	p.scan.Reason = why
	w := &scan{fullScan: s, p: p}
	all := p.Owner() == "" && !p.DryRun()
	if !p.DryRun() {
		w.yield = p.interval() / 2
	}
	if all {
		s.scans.begin(p)
	}
	if err = w.walk(ctx); err == nil && all {
		p.scan.NextBy = s.scans.begun.Add(s.scans.end(p))
	}
	return err
}

// follow requests the next pass for when an owner that writes no records may be dead. Only a full
// scan finds its entries.
func (s *fullScan) follow(p *Pass) {
	p.RunAgain(time.Time{}) // not at the next fall of any other
	if fall := p.nextPlainFall(s.scans.begun); !fall.IsZero() {
		least := s.scans.begun.Add(min(plainApart, p.interval()))
		if fall.Before(least) {
			fall = least
		}
		p.RunAgain(fall)
	}
}

// scan is one pass.
type scan struct {
	*fullScan
	p     *Pass
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
	w.silent, w.batcher = p.silent(), newBatcher(w.entries, p)
	for page, err := range guard.Fields(ctx, p.Client(), key, p.paging()) { // HSCAN
		if err != nil {
			return err
		}
		p.Skip(SkipUnreadable, page.Left)
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
		w.scanned(w.silent, p.silent())
		p.foundEmpty(w.silent)
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
		case Unreadable:
			p.Skip(SkipUnreadable, len(ids))
		case Doubted:
			p.Skip(SkipDoubted, len(ids))
		case Dead:
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

const (
	// fullScanShare is the share of a Redis core for full scans that can find nothing.
	fullScanShare = 0.0005
	// longestGap is the longest time between full scans, unless the interval is longer.
	longestGap = 15 * time.Minute
	// looks is how often a pass counts while indexes have more members than there are entries.
	looks = 5
	// lookAgain is the pause between two counts, or interval/10 if shorter.
	lookAgain = time.Second
)

// Reasons for a full scan, in metrics and status.
const (
	dueAsked      = "asked"       // somebody asked for it
	dueDryRun     = "dry_run"     // this janitor only reports, so its findings stay
	dueTerm       = "term"        // the first of a term: the last leader's findings are unknown
	dueUnfinished = "unfinished"  // the last one did not succeed
	dueHold       = "hold"        // a hold began since the last one
	dueSilent     = "silent"      // an owner is dead that the quick way cannot finish
	dueUnindexed  = "unindexed"   // there are entries that no index of the roster has
	dueUnknown    = "unknown"     // the counts are unknown
	dueInterval   = "interval"    // the last one is long ago
	dueStaleIndex = "stale_index" // indexes have members that are not entries of their owners
)

// due decides whether a full scan is worth its cost; without one, an interval costs Redis only a
// count. The quick way misses entries only if their owner is not on the roster or its index lacks
// them, so only entries that no index of the roster has:
//
//	entries - members of the roster's indexes = unindexed entries - stale members
//
// One MULTI counts them at one instant, and scripts write entries and indexes in the same step. A
// positive difference proves unindexed entries: scan now. So the entries of a dead owner without an
// index (an older version, NoReverseIndex, a lost index) are gone within the TTL and one interval.
//
// Stale members, whose entries were lost or name another instance by now, could cancel out as many
// unindexed entries, so a negative difference causes a scan too. An owner removes them as soon as
// it learns of them (heal.lua), within milliseconds if notified, so a pass counts a few times
// before it believes them.
//
// Equal numbers of both still cancel out, if a writer that notifies nobody takes over ids whose
// old sockets are still open, until their owners check them. So in any case the next scan comes
// after longestGap.
//
// No count reveals a dead owner that the quick way cannot finish: it is not on the roster, or has
// no index, one of another type, or a refused batch. It causes a scan each interval, until one has
// found no entry of it.
type due struct {
	epoch    uint64 // its term; 0: there was none
	finished bool
	begun    time.Time
	gap      time.Duration // longest time until the next one begins
	hold     time.Time     // the last hold when it began
}

type counts struct {
	known            bool
	entries, members int64
}

func (d *due) why(p *Pass, c counts, silent bool) string {
	switch {
	case p.Requested():
		return dueAsked
	case p.DryRun():
		return dueDryRun
	case d.epoch != p.Epoch():
		return dueTerm
	case !d.finished:
		return dueUnfinished
	case !d.hold.Equal(p.lastHold()):
		return dueHold
	case silent:
		return dueSilent
	case !c.known:
		return dueUnknown
	case c.entries > c.members:
		return dueUnindexed
	case time.Since(d.begun) >= d.gap-p.interval()/10: // a timer may fire a little early
		return dueInterval
	case c.entries < c.members:
		return dueStaleIndex
	}
	return ""
}

func (d *due) begin(p *Pass) {
	d.epoch, d.finished, d.begun, d.hold = p.Epoch(), false, time.Now(), p.lastHold()
}

// end records success, and returns how long the next scan may wait.
func (d *due) end(p *Pass) time.Duration {
	d.finished, d.gap = true, stretched(p.spent, p.interval())
	return d.gap
}

// stretched returns the time until the next scan, so that scans of this cost keep to fullScanShare.
func stretched(cost, interval time.Duration) time.Duration {
	return max(interval, min(time.Duration(float64(cost)/fullScanShare), longestGap))
}

func (s *fullScan) whyDue(ctx context.Context, p *Pass) (why string, err error) {
	for look := 1; ; look++ {
		c, err := s.count(ctx, p)
		if err != nil {
			return "", err
		}
		silent := false
		for id, since := range p.silent() {
			silent = silent || !s.isEmpty(id, since)
		}
		why = s.scans.why(p, c, silent)
		if why != dueStaleIndex || look == looks {
			return why, nil
		}
		if !wait.For(ctx, min(lookAgain, p.interval()/10)) {
			return "", context.Cause(ctx)
		}
	}
}

// count counts entries and members; beyond a page of owners not at one instant. An owner that joins
// meanwhile, or a refusal, makes the counts unknown.
func (s *fullScan) count(ctx context.Context, p *Pass) (c counts, err error) {
	roster, err := p.roster(ctx)
	if err != nil {
		return c, err
	}
	ids := slices.Collect(maps.Keys(roster))
	c.known = true
	for from := 0; from == 0 || from < len(ids); from += pipelined {
		page := ids[from:min(from+pipelined, len(ids))]
		err := p.Call(ctx, func(ctx context.Context) error { return c.add(ctx, p, page, len(ids)) })
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *counts) add(ctx context.Context, p *Pass, page []string, all int) error {
	var entries, listed *redis.IntCmd
	indexes := make([]*redis.IntCmd, len(page))
	_, err := p.Client().TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		l := p.Layout()
		entries, listed = pipe.HLen(ctx, l.Registry()), pipe.SCard(ctx, l.Roster())
		for i, id := range page {
			indexes[i] = pipe.SCard(ctx, l.Devices(id))
		}
		return nil
	})
	if err != nil && !together.Answered(err) {
		return err
	}
	c.known = c.known && err == nil && listed.Val() == int64(all)
	c.entries = entries.Val()
	for i := range page {
		c.members += indexes[i].Val()
		c.known = c.known && indexes[i].Err() == nil
	}
	return nil
}
