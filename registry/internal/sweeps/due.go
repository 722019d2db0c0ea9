package sweeps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

// indexWrong is the witness' count of times that owners found their index had lost members; see
// heal.lua.
const indexWrong = "index_wrong"

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
	dueIndexWrong = "index_wrong" // an owner found that its index had lost members
	dueSilent     = "silent"      // the quick way cannot finish a silent owner
	dueUnlisted   = "unlisted"    // the last one found an owner that is not on the roster
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
// old sockets are still open, until their owners check them. So if the last scan met an owner that
// is not on the roster, or entries of one without an index now, every interval has a scan. The
// mass-failure breaker relies on that: it knows owners without a roster entry only from full scans,
// and forgets those not met for some intervals. In any case the next scan comes after longestGap.
//
// No count reveals an owner that stays silent on the roster because the quick way cannot finish it
// (no index, one of another type, a refused batch). It causes a scan each interval, until one has
// found no entry of it.
type due struct {
	epoch    uint64 // its term; 0: there was none
	finished bool
	begun    time.Time
	gap      time.Duration // longest time until the next one begins
	hold     time.Time     // the last hold when it began
	told     int64         // value of indexWrong by then
	met      map[string]bool
	unlisted bool // an owner in met was not on the roster
}

type counts struct {
	known                  bool
	entries, members, told int64
	empty                  []string // owners on the roster without an index
}

func (d *due) why(p *janitor.Pass, c counts, silent bool) string {
	switch {
	case p.Requested():
		return dueAsked
	case p.DryRun():
		return dueDryRun
	case d.epoch != p.Epoch():
		return dueTerm
	case !d.finished:
		return dueUnfinished
	case !d.hold.Equal(p.LastHold()):
		return dueHold
	case c.known && c.told != d.told:
		return dueIndexWrong
	case silent:
		return dueSilent
	case d.unlisted:
		return dueUnlisted
	case !c.known:
		return dueUnknown
	case c.entries > c.members || slices.ContainsFunc(c.empty, func(id string) bool { return d.met[id] }):
		return dueUnindexed
	case time.Since(d.begun) >= d.gap-p.Interval()/10: // a timer may fire a little early
		return dueInterval
	case c.entries < c.members:
		return dueStaleIndex
	}
	return ""
}

func (d *due) begin(p *janitor.Pass, c counts) {
	d.epoch, d.finished, d.begun = p.Epoch(), false, time.Now()
	d.hold, d.told = p.LastHold(), c.told
}

// end records success, and returns how long the next scan may wait.
func (d *due) end(p *janitor.Pass, owners map[string]bool) time.Duration {
	d.finished, d.met, d.unlisted = true, make(map[string]bool, len(owners)), false
	for owner, listed := range owners {
		d.met[owner] = true
		d.unlisted = d.unlisted || !listed
	}
	d.gap = stretched(p.Spent(), p.Interval())
	return d.gap
}

// stretched returns the time until the next scan, so that scans of this cost keep to fullScanShare.
func stretched(cost, interval time.Duration) time.Duration {
	return max(interval, min(time.Duration(float64(cost)/fullScanShare), longestGap))
}

func (s *fullScan) whyDue(ctx context.Context, p *janitor.Pass) (why string, c counts, err error) {
	for look := 1; ; look++ {
		if c, err = s.count(ctx, p); err != nil {
			return "", c, err
		}
		silent := false
		for id, since := range p.Silent() {
			silent = silent || !s.isEmpty(id, since)
		}
		why = s.scans.why(p, c, silent)
		if why != dueStaleIndex || look == looks {
			return why, c, nil
		}
		if !wait.For(ctx, min(lookAgain, p.Interval()/10)) {
			return "", c, context.Cause(ctx)
		}
	}
}

// count counts entries and members; beyond a page of owners not at one instant. An owner that joins
// meanwhile, or a refusal, makes the counts unknown.
func (s *fullScan) count(ctx context.Context, p *janitor.Pass) (c counts, err error) {
	roster, err := p.Roster(ctx)
	p.RunAgain(time.Time{}) // this sweep keeps to its interval
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

func (c *counts) add(ctx context.Context, p *janitor.Pass, page []string, all int) error {
	var entries, listed *redis.IntCmd
	var told *redis.StringCmd
	indexes := make([]*redis.IntCmd, len(page))
	_, err := p.Client().TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		l := p.Layout()
		entries, listed = pipe.HLen(ctx, l.Registry()), pipe.SCard(ctx, l.Roster())
		told = pipe.HGet(ctx, l.Witness(), indexWrong)
		for i, id := range page {
			indexes[i] = pipe.SCard(ctx, l.Devices(id))
		}
		return nil
	})
	if err != nil && !together.Answered(err) {
		return err
	}
	c.told, _ = told.Int64()                         // it does not exist before the first
	known := err == nil || errors.Is(err, redis.Nil) // redis.Nil comes from the counter
	c.known = c.known && known && listed.Val() == int64(all)
	c.entries = entries.Val()
	for i, id := range page {
		n := indexes[i].Val()
		if c.members += n; n == 0 {
			c.empty = append(c.empty, id)
		}
		c.known = c.known && indexes[i].Err() == nil
	}
	return nil
}
