package janitor

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// A Sweeper is one kind of cleaning. The engine runs its passes in a term, on its interval and on
// demand, one at a time, and makes of each a report, a log line and metrics.
//
// Absence is no evidence. That a set lacks a member, a hash a field, or that a key is missing
// condemns nothing by itself: the set may be the thing that was lost, with everybody alive. A sweep
// may conclude from
//
//   - a heartbeat's absence: Pass.Liveness finds it, and with Batch.Owner the guard finds it again
//     at the delete, on a Redis that was listened to for long enough that silence means something,
//   - a positive statement that something is over: finished, ended, cancelled,
//   - absence that lasted through a grace period in which the place that it is missing from was
//     itself seen alive, and nothing held.
type Sweeper interface {
	// Name stands in metrics, reports and the log. It is fixed and unique.
	Name() string
	// Interval from the beginning of one pass to the beginning of the next; 0: Config.Interval.
	Interval() time.Duration
	// Run is one pass: it finds candidates, judges them and deletes the condemned. It returns what
	// Pass's methods return: a HeldError makes the pass held, ErrFenced or the end of ctx lost, any
	// other error failed; nil: done. ctx ends with the term.
	Run(ctx context.Context, p *Pass) error
}

// A FullScanner is a Sweeper that makes full scans: see Pass.BeginFullScan. A leader whose passes
// of it fail for three intervals resigns, also if they fail before a full scan begins. If there are
// several, a pass of any of them that is done counts for all.
type FullScanner interface {
	Sweeper
	// FullScans has nothing to do: that a sweeper has it says that it makes full scans.
	FullScans()
}

// A Batch is what a sweep wants deleted by one guarded script.
type Batch struct {
	// Owner is the instance judged dead: the guard deletes only while it has no heartbeat. "": no
	// owner is judged. Then no evidence about a life is behind the delete, and no mass-failure
	// breaker; the Body has to find its own.
	Owner string
	Body  *guard.Body // deletes Items behind the guard
	Keys  []string    // the body's own keys, in one Cluster slot
	// Items are distinct, 1 to Pass.BatchSize, so that the server is not held for long; never more
	// than Config.DeleteBatch.
	Items []string
	// Deleted is told once what went: when the reply says so, or when a lost reply was looked up,
	// after the pass or the term. Of the answer it has Deleted, Reowned, and the Reason that the body
	// gave record as a note. It may be called from any goroutine. nil: nobody asks.
	Deleted func(a guard.Answer)
}

// A Pass is one run of a sweep in one term. It is for one goroutine.
type Pass struct {
	t      *termState
	req    Request
	judged map[string]Liveness
	scan   FullScanStatus // Reason "": it is no full scan
	idle   bool           // what the sweep is for was not due
	// recorded reports whether the eviction log has a batch of this pass.
	recorded bool
	spent    time.Duration // for how long its calls held the server
	paged    int           // the size of the page that the present call reads; 0: it reads none
	again    time.Time     // when the next pass is wanted, if that is before the interval is over

	// what went, by dead owner, those beyond fromMost together; nil: nothing
	from map[string]int

	mu         sync.Mutex // guards what Status reads meanwhile: the counts of report, and these
	report     Report
	total      int
	mark, next mark // the rate is taken since mark; next becomes it, each 10 s
}

// Epoch is the term's fencing number. A sweep that deletes outside Redis makes its statement
// conditional on it: no higher one has been seen there.
func (p *Pass) Epoch() uint64 { return p.report.Epoch }

// Owner is the only owner that this pass is about; "": all.
func (p *Pass) Owner() string { return p.req.Owner }

// DryRun tells that nothing is to be deleted. Delete sees to it by itself; a sweep that deletes
// outside Redis has to.
func (p *Pass) DryRun() bool { return p.report.DryRun }

// Requested tells that somebody asked for this pass, and not the clock.
func (p *Pass) Requested() bool { return p.req.asked }

// Interval is Config.Interval.
func (p *Pass) Interval() time.Duration { return p.t.j.cfg.Interval }

// Client is what to read through.
func (p *Pass) Client() redis.UniversalClient { return p.t.j.cfg.Client }

// Layout names the keys.
func (p *Pass) Layout() guard.Layout { return p.t.j.layout }

// Log is for what an operator has to see.
func (p *Pass) Log() *slog.Logger { return p.t.j.log }

// PageSize is the COUNT for the next page of a scan, at most Config.ScanCount. Ask for it in the
// Call that reads the page: what that takes decides on the size of later ones, so that none holds
// the server for much more than half a millisecond.
func (p *Pass) PageSize() int {
	p.paged = p.t.pages.Get()
	return p.paged
}

// BatchSize is how many items the next batch should have at most. It changes with what batches
// take; a batch that was put together for an earlier size is welcome all the same.
func (p *Pass) BatchSize() int { return p.t.batches.Get() }

// AddTotal adds to the number of elements that the pass will read, as far as that can be known
// cheaply: HLEN, SCARD. It is for Progress only.
func (p *Pass) AddTotal(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += n
}

// AddScanned counts elements read.
func (p *Pass) AddScanned(n int) {
	p.t.j.metrics.scanned.WithLabelValues(p.report.Sweep).Add(float64(n))
	if at, due := p.scanned(n, time.Now()); due {
		p.Log().Info("pass under way", "sweep", at.Sweep, "epoch", p.Epoch(),
			"scanned", at.Scanned, "total", at.Total, "evicted", at.Evicted,
			"per_second", int(at.PerSecond), "seconds_left", int(at.SecondsLeft))
	}
}

// AddCondemned counts candidates that are to be deleted, in a dry run that does not hand them to
// Delete again. Delete counts all others.
func (p *Pass) AddCondemned(n int) { p.report.Condemned += n }

// AddEvicted counts what the sweep has deleted elsewhere than by Delete.
func (p *Pass) AddEvicted(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Evicted += n
}

// Skip counts candidates that were kept. Delete counts those that the guard kept; what a sweep
// cannot read or understand it counts itself, as SkipUnreadable.
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

// CheckHeld returns a HeldError while nothing could be deleted anyway. A sweep whose finding costs
// something asks before it begins.
func (p *Pass) CheckHeld(ctx context.Context) error {
	if wait, reason := p.t.j.listener.heard().heldFor(time.Now()); wait > 0 {
		return &HeldError{known(reason)}
	}
	if p.DryRun() { // an operator that paused may want to see what would go
		return nil
	}
	return p.t.checkPaused(ctx, 0)
}

// Call makes one call to Redis on behalf of the sweep: with a deadline of its own, and when
// sweeping has rested enough to keep to its share of Redis' time. Calls should be small: one page,
// one pipeline; and not be made in one another.
func (p *Pass) Call(ctx context.Context, f func(ctx context.Context) error) error {
	p.paged = 0
	return p.t.call(ctx, func(held time.Duration) {
		p.spent += held
		if p.paged > 0 {
			p.t.pages.Took(p.paged, held)
		}
	}, f)
}

// SetPages reads a set page by page, one page ahead, so that Redis need not wait while the caller
// works on a page. An error is the last of the pages. A set may change meanwhile, and a page may
// repeat what an earlier one had.
func (p *Pass) SetPages(ctx context.Context, key string) iter.Seq2[[]string, error] {
	type page struct {
		items []string
		err   error
	}
	return func(yield func([]string, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		pages := make(chan page)
		var reader conc.WaitGroup
		defer reader.Wait()
		defer cancel()
		reader.Go(func() {
			defer close(pages)
			for cursor := uint64(0); ; {
				var read page
				var size int
				took := func(held time.Duration) { p.t.pages.Took(size, held) }
				read.err = p.t.call(ctx, took, func(ctx context.Context) (err error) {
					size = p.t.pages.Get()
					found, err := guard.SScan(ctx, p.Client(), key, cursor, int64(size))
					read.items, cursor = found.Items, found.Next
					return err
				})
				select {
				case pages <- read:
				case <-ctx.Done():
					return
				}
				if read.err != nil || cursor == 0 {
					return
				}
			}
		})
		for read := range pages {
			if !yield(read.items, read.err) {
				return
			}
		}
		if ctx.Err() != nil { // the pages ended for that
			yield(nil, context.Cause(ctx))
		}
	}
}

// Roster is every instance on the roster with its liveness. It is read again each second; while all
// live, when a heartbeat on it can end, an instance comes or says goodbye, and once in a heartbeat
// interval. A pass that asks for it runs again as soon as the next heartbeat can end.
func (p *Pass) Roster(ctx context.Context) (roster map[string]Liveness, err error) {
	if roster, p.again = p.t.owners.known(); roster != nil {
		return roster, nil
	}
	err = p.Call(ctx, func(ctx context.Context) (err error) {
		roster, p.again, err = p.t.owners.readRoster(ctx)
		return err
	})
	return roster, err
}

// Listed tells whether an instance stood on the roster when that was last read.
func (p *Pass) Listed(id string) bool { return p.t.owners.listed(id) }

// RunAgain wants the next pass of this sweep at a time before its interval is over: something
// ripens.
func (p *Pass) RunAgain(at time.Time) { p.again = at }

// Silent are the instances on the roster that had no heartbeat when that was last read, and when
// this term first found that. One that comes back and falls silent again has another time.
func (p *Pass) Silent() map[string]time.Time { return p.t.owners.silentSince() }

// SilentSince is one owner's time of Silent; zero: it is not among these.
func (p *Pass) SilentSince(id string) time.Time { return p.t.owners.fell(id) }

// BeginFullScan says that this pass will meet every owner there is, and why it does so now: a word
// for metrics and status. Liveness then tells the mass-failure breaker of owners that no roster
// names; EndFullScan says that all were met. The sweep is a FullScanner.
func (p *Pass) BeginFullScan(why string) { p.scan.Reason = why }

// EndFullScan ends what BeginFullScan began.
func (p *Pass) EndFullScan() { p.t.owners.metAll() }

// NextFullScan says when the next full scan is due at the latest, for metrics and status.
func (p *Pass) NextFullScan(by time.Time) { p.scan.NextBy = by }

// NotDue says that the pass looked, and need not do what the sweep is for. It is counted as done,
// and the report of the last pass that did its work stands.
func (p *Pass) NotDue() { p.idle = true }

// Spent is for how long the pass' calls have held the server so far, without its deletes.
func (p *Pass) Spent() time.Duration { return p.spent }

// LastHold is when the witness was last held, by the server's clock, as of the last tick; zero:
// never, or not known.
func (p *Pass) LastHold() time.Time { return p.t.j.listener.heard().witness.LastHold }

// Liveness says of each owner whether its heartbeat exists, asking once a pass. An owner whose
// heartbeat cannot be read is Unreadable: keep. This replica itself lives. The error is for when
// nothing could be read.
func (p *Pass) Liveness(ctx context.Context, owners []string) (map[string]Liveness, error) {
	var unknown []string
	for _, id := range owners {
		if _, ok := p.judged[id]; !ok {
			unknown = append(unknown, id)
		}
	}
	if len(p.judged)+len(unknown) > maxJudged {
		clear(p.judged)
		unknown = owners
	}
	if len(unknown) > 0 {
		err := p.Call(ctx, func(ctx context.Context) error {
			found, left, err := p.t.j.heartbeats(ctx, unknown, nil)
			maps.Copy(p.judged, found)
			if err == nil {
				err = p.t.owners.judged(ctx, found, left, p.scan.Reason != "")
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	answer := make(map[string]Liveness, len(owners))
	for _, id := range owners {
		answer[id] = p.judged[id]
	}
	return answer, nil
}

// Delete has one batch judged again and deleted by the server, in one atomic step, and recorded in
// the log. The answer is Done, or Alive: the owner is back, leave it alone for this pass. Errors:
// HeldError, ErrFenced, ErrRefused; after any other the batch's fate is unknown, it will be asked
// for again, and the pass is to end. In a dry run everything is condemned and nothing sent: Done
// with nothing deleted.
func (p *Pass) Delete(ctx context.Context, b Batch) (guard.Answer, error) {
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
	case guard.Fenced:
		p.Skip(SkipFenced, n)
	case guard.Held:
		p.Skip(SkipHeld, n)
		p.t.j.listener.poke() // so that nobody asks in vain until it is over
		return a, &HeldError{known(a.Reason)}
	}
	return a, err
}

// fromMost is how many dead owners a report names; a line of a log has to end.
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

// Forget takes a dead owner off the roster, last of all, and with it the sets that named what it
// left, of which so many members were swept. One that has come back, or with a set of more members,
// stays. Off the roster the mass-failure breaker does not know an owner any more: forget none of
// which something may still be there. ErrRefused: this user may not UNLINK the sets.
func (p *Pass) Forget(ctx context.Context, owner string, swept int, sets ...string) error {
	t := p.t
	if err := t.mayDelete(ctx, owner); err != nil {
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
			t.owners.swept(owner)
		}
		return nil
	})
}
