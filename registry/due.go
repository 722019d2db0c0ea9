package registry

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

// indexWrong is the witness' field that counts how often owners found that their index had lost
// members; see heal.lua.
const indexWrong = "index_wrong"

const (
	// fullScanShare is how much of a core of Redis the full scan may cost while it can find nothing.
	fullScanShare = 0.0005
	// longestGap is the longest from one full scan to the next, unless the interval is longer.
	longestGap = 15 * time.Minute
	// looks is how often a pass counts while indexes have more members than there are entries.
	looks = 5
	// lookAgain is the pause between two of them, an interval/10 at most. The roster is read once a
	// second.
	lookAgain = time.Second
)

// Why a full scan runs, as metrics and status have it.
const (
	dueAsked      = "asked"       // somebody asked for it
	dueDryRun     = "dry_run"     // this janitor only reports, and what it finds stays
	dueTerm       = "term"        // the first of a term: nobody knows what the last leader saw
	dueUnfinished = "unfinished"  // the last one did not end well
	dueHold       = "hold"        // the witness was held since the last one began
	dueIndexWrong = "index_wrong" // an owner found that its index had lost members
	dueSilent     = "silent"      // the quick way cannot finish an owner that is silent
	dueUnlisted   = "unlisted"    // the last one met an owner that is not on the roster
	dueUnindexed  = "unindexed"   // there are entries that no index of the roster has
	dueUnknown    = "unknown"     // that could not be counted
	dueInterval   = "interval"    // the last one is long ago
	dueStaleIndex = "stale_index" // indexes have members that are not entries of their owners
)

// due decides at each interval whether the full scan has to read everything. While it does not, an
// interval costs Redis a count. The quick way finds a dead owner by the roster, and its entries by
// its index. So entries of the dead escape it only if their owner is not on the roster, or its
// index does not have them. In either case no index of the roster has them:
//
//	entries - members of all indexes of the roster = entries not indexed - members too many
//
// All are counted by one MULTI, so at one instant: each script that writes an entry writes its
// index in the same step. A positive difference proves entries that are not indexed, and the scan
// comes at once. So what a dead owner without an index left (one of an older version, one with
// NoReverseIndex, one whose index was lost) goes within the TTL and one interval.
//
// Members too many could hide as many entries. So they count as a finding too: the scan is put off
// only while both numbers are equal. Members too many are of devices whose entry was lost, or names
// another instance by now. An owner takes the latter out of its index as soon as it learns of them
// (heal.lua), which takes milliseconds where it is told. So a pass looks a few times before it
// takes them for lasting. An owner that has just died learns of nothing: until it is swept each
// interval has its scan.
//
// What can still hide is as many entries without an index as there are members too many, exactly.
// That lasts where a writer that tells nobody takes over devices whose sockets are still open
// elsewhere, and nothing else differs. Their owners find out when they check them, from then on the
// numbers differ. The last full scan narrows that further. While it met an owner that is not on the
// roster, or entries of one that has no index now, the scan runs each interval. The mass-failure
// breaker relies on that: it knows owners without a roster entry by full scans alone, and forgets
// those that were not met for some intervals. In any case the next scan comes after longestGap.
//
// An owner that stays silent on the roster because the quick way cannot finish it (there is no
// index, it is of another type, a batch is refused) has the scan run each interval too, until one
// has found nothing of it: no count can hide that one.
//
// It is about the last full scan of all owners, and touched by the full scan alone.
type due struct {
	epoch    uint64 // its term; 0: there was none
	finished bool
	begun    time.Time
	gap      time.Duration // from its beginning to the next one's, at most
	hold     time.Time     // the last hold when it began
	told     int64         // how often owners had found an index wrong by then
	met      map[string]bool
	unlisted bool // one of them was not on the roster
}

// counts is how much there is, at one instant.
type counts struct {
	known                  bool
	entries, members, told int64
	empty                  []string // owners on the roster without an index
}

// why says why a full scan is due; "": it is not.
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
	case time.Since(d.begun) >= d.gap-p.Interval()/10: // a timer may come a little early
		return dueInterval
	case c.entries < c.members:
		return dueStaleIndex
	}
	return ""
}

// begin notes that a full scan of all owners begins.
func (d *due) begin(p *janitor.Pass, c counts) {
	d.epoch, d.finished, d.begun = p.Epoch(), false, time.Now()
	d.hold, d.told = p.LastHold(), c.told
}

// end notes that it ended well, and returns how long it may be until the next. met is what it met
// of each owner.
func (d *due) end(p *janitor.Pass, met map[string]*scanned) time.Duration {
	d.finished, d.met, d.unlisted = true, make(map[string]bool, len(met)), false
	for owner, m := range met {
		d.met[owner] = true
		d.unlisted = d.unlisted || !m.listed
	}
	d.gap = stretched(p.Spent(), p.Interval())
	return d.gap
}

// stretched is how long after the beginning of a full scan that cost so much the next one may come:
// longer than an interval if that would cost more than fullScanShare.
func stretched(cost, interval time.Duration) time.Duration {
	return max(interval, min(time.Duration(float64(cost)/fullScanShare), longestGap))
}

// whyDue asks whether a full scan is due, and why.
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

// count counts entries and members. With more than a page of owners that is not of one instant, and
// the numbers may differ by what was written meanwhile. An owner that joined meanwhile makes them
// unknown, and so does whatever Redis refuses to say.
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

// add counts the members of one page of indexes, and what there is besides, at one instant. all is
// how many the roster has as far as is known.
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
	c.told, _ = told.Int64()                         // there is none before the first
	known := err == nil || errors.Is(err, redis.Nil) // that is the first error
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
