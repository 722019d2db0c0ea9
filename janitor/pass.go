package janitor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// A Sweeper is one kind of cleaning. During a term its passes run one at a time, on its interval
// and on demand.
//
// Absence is not evidence. A set without a member, a hash without a field or a missing key condemns
// nothing: it may have been lost with everybody alive. A sweep may act on
//
//   - the absence of a heartbeat: Pass.Liveness finds it, and with Batch.Owner the guard checks it
//     again at the delete, on a Redis observed for long enough that silence means something,
//   - a positive statement that something is over: finished, ended, cancelled,
//   - absence that lasted for a grace period without a hold, while the place that lacks it was
//     itself seen alive.
type Sweeper interface {
	// Name is used in metrics, reports and the log. It is fixed and unique.
	Name() string
	// Interval is the time between the starts of two passes; 0 means Config.Interval.
	Interval() time.Duration
	// Run is one pass. A HeldError makes it held, ErrFenced or the end of ctx lost, any other error
	// failed; nil means done. ctx ends with the term.
	Run(ctx context.Context, p *Pass) error
}

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body = guard.Body

// NewBody appends a sweep's own Lua to the guard. When it runs, the guard has decided that the
// leader may delete and that Batch.Owner is silent. The body can use:
//
//	KEYS[6], KEYS[7], ...     Batch.Keys
//	ARGV[8], ARGV[9], ...     Batch.Items, distinct, at most 1000
//	ARGV[6]                   Batch.Owner, "" if no owner is judged
//	kind(key)                 the key's type as TYPE reports it, "none" if it does not exist
//	refused(command, key, ..) nil, or the error to return if this user may not run the command
//	record(deleted, reowned, name, list, note)
//	                          writes the log record: how many items will be deleted, how many now
//	                          belong to somebody else, the deleted ones as a list called name, and
//	                          an optional note: the answer's reason, also when repeated
//	answer('DONE', deleted, reowned, reason)
//	                          builds the script's result
//
// It must, in this order:
//
//  1. Judge its items again by their own content: an entry still names the dead owner, a job is
//     marked finished. Absence from another hash or set is not evidence: that key may have been
//     lost with everybody alive.
//  2. Check types with kind, and every command that follows with refused. Redis does not roll
//     scripts back: a failure after the record would leave a record of deletes that never happened.
//  3. Call record exactly once. If it returns anything but nil, return that at once.
//  4. Delete exactly what it recorded, and return answer('DONE', ...).
//
// See evict.lua for an example.
func NewBody(lua string) *Body { return guard.NewBody(lua) }

// An Answer is what became of a batch.
type Answer = guard.Answer

// A Batch is a sweep's request to delete items in one guarded script.
type Batch struct {
	// Owner is the instance judged dead: the guard deletes only while its silence proves that. With
	// "" nothing of that protects the delete, and the Body must find its own evidence.
	Owner string
	Body  *Body
	Keys  []string // the body's own keys, in one Cluster slot
	// Items are distinct, 1 to Pass.BatchSize, and never more than Config.DeleteBatch.
	Items []string
	// Deleted, if not nil, is called once with the result, on any goroutine: on the reply, or, if
	// that was lost, when the batch's fate is known. Only Deleted, Reowned and Reason (the body's
	// note) are set.
	Deleted func(a Answer)
}

// A Pass is one run of a sweep in one term. It is for one goroutine only.
type Pass struct {
	t            *termState
	req          Request
	scan         FullScanStatus // Reason "": not a full scan
	idle         bool           // the sweep's work was not due
	recorded     bool
	judgesOwners bool
	spent        time.Duration
	paged        int // size of the page that the current call reads, or 0
	again        time.Time

	// by dead owner, those after the first fromMost together
	from map[string]int

	mu     sync.Mutex // guards the fields that Status reads: the counts of report, and these
	report Report
	total  int
	logged time.Time // its progress
}

// Epoch is the term's fencing number. A sweep that deletes outside Redis must make its statement
// conditional on having seen no higher one there.
func (p *Pass) Epoch() uint64 { return p.report.Epoch }

// Owner is the only owner to sweep; "" means all.
func (p *Pass) Owner() string { return p.req.Owner }

// DryRun reports that nothing may be deleted. Delete obeys by itself.
func (p *Pass) DryRun() bool { return p.report.DryRun }

// Requested reports that somebody requested this pass.
func (p *Pass) Requested() bool { return p.req.asked }

// Client is the client for reads.
func (p *Pass) Client() redis.UniversalClient { return p.t.j.cfg.Client }

// Layout names the keys.
func (p *Pass) Layout() guard.Layout { return p.t.j.layout }

// Log is for messages to operators.
func (p *Pass) Log() *slog.Logger { return p.t.j.log }

// PageSize is the COUNT for the next page of a scan. Call it inside the Call that reads the page,
// whose duration sets the size of later pages.
func (p *Pass) PageSize() int {
	p.paged = p.t.pages.Get()
	return p.paged
}

// BatchSize is the most items for the next batch.
func (p *Pass) BatchSize() int { return p.t.batches.Get() }

// addTotal adds to the number of elements that the pass will read, for Progress.
func (p *Pass) addTotal(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += n
}

// AddScanned counts elements read.
func (p *Pass) AddScanned(n int) {
	p.t.j.metrics.scanned.WithLabelValues(p.report.Sweep).Add(float64(n))
	if at, due := p.scanned(n, time.Now()); due {
		p.Log().Info("pass in progress", "sweep", at.Sweep, "epoch", p.Epoch(),
			"scanned", at.Scanned, "total", at.Total, "evicted", at.Evicted,
			"per_second", int(at.PerSecond), "seconds_left", int(at.SecondsLeft))
	}
}

// AddCondemned counts candidates of a dry run that are not passed to Delete again.
func (p *Pass) AddCondemned(n int) { p.report.Condemned += n }

// Skip counts candidates that were kept.
func (p *Pass) Skip(reason SkipReason, n int) {
	if n == 0 {
		return
	}
	if p.report.Spared == nil {
		p.report.Spared = map[SkipReason]int{}
	}
	p.report.Spared[reason] += n
	p.t.j.metrics.spared.WithLabelValues(string(reason)).Add(float64(n))
}

// CheckHeld returns a HeldError while nothing could be deleted anyway. A costly search should call
// it first.
func (p *Pass) CheckHeld(ctx context.Context) error {
	if wait, reason := p.t.j.listener.heard().heldFor(time.Now()); wait > 0 {
		return &HeldError{Reason: known(reason)}
	}
	// What judges owners rests on records, which Redis does not evict with the heartbeats.
	if !p.judgesOwners && p.t.j.listener.heard().evicting(time.Now()) {
		return &HeldError{Reason: heldEvicting}
	}
	if p.DryRun() { // an operator who has paused sweeping may want a preview
		return nil
	}
	return p.t.checkPaused(ctx, 0)
}

func (p *Pass) interval() time.Duration { return p.t.j.cfg.Interval }

func (p *Pass) paging() guard.Paging { return guard.Paging{Size: p.PageSize, Call: p.Call} }

// Call makes one call to Redis, with a deadline, once sweeping has rested enough. Keep calls small
// (one page, one pipeline), and do not nest them.
func (p *Pass) Call(ctx context.Context, f func(ctx context.Context) error) error {
	p.paged = 0
	return p.t.call(ctx, func(held time.Duration) {
		p.spent += held
		if p.paged > 0 {
			p.t.pages.Took(p.paged, held)
		}
	}, f)
}

// roster returns every instance on the roster with its liveness, read at most a second ago or,
// while nobody is silent, comes or leaves, a third of a heartbeat interval. A pass that calls it
// runs again as soon as the next owner may fall silent.
func (p *Pass) roster(ctx context.Context) (found map[string]Liveness, err error) {
	read := func(ctx context.Context) (err error) {
		found, p.again, err = p.t.owners.members(ctx)
		return err
	}
	if p.t.owners.fresh() {
		return found, read(ctx)
	}
	err = p.Call(ctx, read)
	return found, err
}

// RunAgain requests the next pass of this sweep at a time before its interval is over.
func (p *Pass) RunAgain(at time.Time) { p.again = at }

// silent returns the dead, and since when they are silent: those on the roster, and those that
// write no records, whom a full scan has met.
func (p *Pass) silent() map[string]time.Time {
	silent := map[string]time.Time{}
	p.t.owners.view(func(r *reading) {
		for id, x := range r.owners {
			if x.liveness == Dead && (x.listed || x.State == doubt.Plain) {
				silent[id] = time.UnixMilli(x.Fell())
			}
		}
	})
	return silent
}

// silentSince returns one owner's time in silent, or zero. A copy of all for each of a hundred
// thousand dead owners would take minutes.
func (p *Pass) silentSince(id string) (since time.Time) {
	p.t.owners.view(func(r *reading) {
		if x := r.owners[id]; x != nil && x.liveness == Dead {
			since = time.UnixMilli(x.Fell())
		}
	})
	return since
}

// afterFall is when a heartbeat that was last read before is seen to be gone: it lasts a round trip
// longer than was read, and a reading is valid for a while.
const afterFall = 2 * readingFresh

// nextPlainFall returns the first time later than after at which an owner that writes no records
// is seen to be dead, unless it beats; zero: none.
func (p *Pass) nextPlainFall(after time.Time) (next time.Time) {
	p.t.owners.view(func(r *reading) {
		for _, x := range r.owners {
			at := r.when(x.Ends(r.Since, x.why)).Add(afterFall)
			if x.State == doubt.Plain && x.liveness != Unreadable && at.After(after) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	})
	return next
}

// foundEmpty notes that a full scan has found no entry of these owners, silent since these times.
func (p *Pass) foundEmpty(silent map[string]time.Time) {
	o := p.t.owners
	o.view(func(r *reading) {
		for id, since := range silent {
			if x := r.owners[id]; x != nil && x.State == doubt.Plain {
				o.empty[id] = since.UnixMilli()
			}
		}
	})
}

// lastHold returns the time of the last hold, by the server's clock; zero if unknown.
func (p *Pass) lastHold() time.Time { return p.t.j.listener.heard().witness.LastHold }

// Liveness judges owners, with at most Config.ExistsConcurrency requests for heartbeats at a time.
// Unreadable and Doubted mean keep. Liveness fails only if nothing could be read.
func (p *Pass) Liveness(ctx context.Context, owners []string) (found map[string]Liveness, err error) {
	if found = p.t.owners.known(owners); found != nil {
		return found, nil
	}
	err = p.Call(ctx, func(ctx context.Context) (err error) {
		found, err = p.t.owners.judged(ctx, owners)
		return err
	})
	return found, err
}

// Delete has the server judge one batch again, delete it in the same atomic step, and record it in
// the log. The answer is Done, or Alive or Wait: the owner is back, or its silence proves nothing
// yet; leave it alone in this pass. Errors are HeldError, ErrFenced and ErrRefused; after any other
// the batch's fate is unknown, it will be sent again, and the pass should end. A dry run only
// counts the items as condemned and answers Done.
func (p *Pass) Delete(ctx context.Context, b Batch) (Answer, error) {
	n := len(b.Items)
	if most := p.t.j.cfg.DeleteBatch; n == 0 || n > most {
		return guard.Answer{}, fmt.Errorf("janitor: sweep %q: batch of %d items, want 1 to %d",
			p.report.Sweep, n, most)
	}
	p.report.Condemned += n
	if p.DryRun() {
		return guard.Answer{Verdict: guard.Done}, nil
	}
	failpoint.Hit(failpoint.AfterJudging)
	a, err := p.t.reaper.reap(ctx, p.report.Sweep, b)
	switch a.Verdict {
	case guard.Done:
		p.recorded = true
		p.mu.Lock()
		p.report.Evicted += a.Deleted
		p.mu.Unlock()
		p.evictedFrom(b.Owner, a.Deleted)
		p.Skip(SkipReowned, a.Reowned)
	case guard.Alive:
		p.Skip(SkipAlive, n)
	case guard.Wait:
		p.Skip(SkipDoubted, n)
	case guard.Fenced:
		p.Skip(SkipFenced, n)
	case guard.Held:
		p.Skip(SkipHeld, n)
		p.t.j.listener.poke() // so that nobody tries in vain until the hold is over
		return a, &HeldError{Reason: known(a.Reason)}
	}
	return a, err
}

const fromMost, fromOthers = 20, "(others)"

func (p *Pass) evictedFrom(owner string, n int) {
	if owner == "" || n == 0 {
		return
	}
	if _, named := p.from[owner]; !named && len(p.from) >= fromMost {
		owner = fromOthers
	}
	if p.from == nil {
		p.from = map[string]int{}
	}
	p.from[owner] += n
}

// forget removes a dead owner from the roster, as the last step, and deletes the sets that list its
// entries. If the owner has come back, or a set has more than swept members, all stay. forget
// returns ErrRefused if this user may not UNLINK the sets.
func (p *Pass) forget(ctx context.Context, owner string, swept int, sets ...string) error {
	t := p.t
	if err := t.checkPaused(ctx, pauseFresh); err != nil {
		return err
	}
	return p.Call(ctx, func(ctx context.Context) error {
		verdict, err := t.j.guard.Forget(ctx, t.owners.lease, owner, swept, sets...)
		switch {
		case err != nil:
			return err
		case verdict == guard.Fenced:
			t.end(ErrFenced)
			return ErrFenced
		case verdict == guard.Refused:
			return fmt.Errorf("%w: the index of %q cannot be unlinked", ErrRefused, owner)
		case verdict == guard.Done:
			t.owners.forgot(owner)
		}
		return nil
	})
}
