package janitor

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/registry"
)

// A Sweep is one kind of cleaning. The engine runs its passes in a term, on its interval and on demand,
// one at a time, and makes of each a report, a log line and metrics.
//
// Absence is no evidence. That a set lacks a member, a hash a field, or that a key is missing
// condemns nothing by itself: the set may be the thing that was lost, with everybody alive. A sweep
// may conclude from
//
//   - a heartbeat's absence: Pass.Judge finds it, and with Batch.Owner the guard finds it again at
//     the delete, on a Redis that was listened to for long enough that silence means something,
//   - a positive statement that something is over: finished, ended, cancelled,
//   - absence that lasted through a grace period in which the place that it is missing from was
//     itself seen alive, and nothing held.
type Sweep interface {
	// Name stands in metrics, reports and the audit. It is fixed and unique.
	Name() string
	// Interval from the beginning of one pass to the beginning of the next; 0: Config.Interval.
	Interval() time.Duration
	// Pass finds candidates, judges them and reaps the condemned. It returns what Pass's methods
	// return: a HeldError makes the pass held, ErrFenced or the end of ctx lost, any other error
	// failed; nil: done. ctx ends with the term.
	Pass(ctx context.Context, p *Pass) error
}

// A Batch is what a sweep wants deleted by one guarded script.
type Batch struct {
	// Owner is the instance judged dead: the guard deletes only while it has no heartbeat. "": no
	// owner is judged. Then there is no evidence about anybody's life behind the delete, and no brake;
	// the Body has to find its own.
	Owner string
	Body  *registry.Body // deletes Items behind the guard
	Keys  []string       // the body's own keys, in one Cluster slot
	Items []string       // distinct; 1 to Pass.BatchSize, so that the server is not held for long, never above Config.DeleteBatch
}

// A Pass is one run of a sweep in one term. It is for one goroutine.
type Pass struct {
	t      *tenure
	req    Request
	report *Report
	judged map[string]Liveness

	progress *progress
	scanning bool          // a full scan: the brake takes whom it meets
	paging   bool          // the page's size was asked for in the present call
	yielded  time.Duration // waited for others
}

// Epoch is the term's fencing number. A sweep that deletes outside Redis makes its statement
// conditional on it: no higher one has been seen there.
func (p *Pass) Epoch() uint64 { return p.report.Epoch }

// Owner is the only owner that this pass is about; "": all.
func (p *Pass) Owner() string { return p.req.Owner }

// DryRun tells that nothing is to be deleted. Reap sees to it by itself; a sweep that deletes
// outside Redis has to.
func (p *Pass) DryRun() bool { return p.report.DryRun }

// Client is what to read through.
func (p *Pass) Client() redis.UniversalClient { return p.t.j.cfg.Client }

// Layout names the keys of the registry.
func (p *Pass) Layout() registry.Layout { return p.t.j.layout }

// PageSize is the COUNT for the next page of a scan, at most Config.ScanCount. Ask for it in the Call that reads the page:
// what that takes decides on the size of later ones, so that none holds the server for more than about a millisecond.
func (p *Pass) PageSize() int {
	p.paging = true
	return p.t.pages.Get()
}

// BatchSize is how many items the next batch should have at most. It changes with what batches take; a batch that
// was put together for an earlier size is welcome all the same.
func (p *Pass) BatchSize() int { return p.t.batches.Get() }

// Expect adds to the number of elements that the pass will look at, as far as that can be known cheaply: HLEN, SCARD. It
// is for Progress only.
func (p *Pass) Expect(n int) { p.progress.expect(n) }

// Scanned counts elements looked at.
func (p *Pass) Scanned(n int) {
	p.report.Scanned += n
	p.progress.looked(n, time.Now())
	p.t.j.metrics.scanned.WithLabelValues(p.report.Sweep).Add(float64(n))
}

// Spared counts candidates that were kept. Reap counts those that the guard kept; what a sweep cannot
// read or understand it counts itself, as SparedUnreadable.
func (p *Pass) Spared(reason string, n int) {
	if n == 0 {
		return
	}
	if p.report.Spared == nil {
		p.report.Spared = map[string]int{}
	}
	p.report.Spared[reason] += n
	p.t.j.metrics.spared.WithLabelValues(reason).Add(float64(n))
}

// Ready returns a HeldError while nothing could be deleted anyway. A sweep whose finding costs
// something asks before it begins.
func (p *Pass) Ready(ctx context.Context) error {
	if wait, reason := p.t.j.listener.warming(time.Now()); wait > 0 {
		return &HeldError{known(reason)}
	}
	if p.DryRun() { // whoever paused may want to see what would go
		return nil
	}
	return p.t.unpaused(ctx, 0)
}

// Call makes one call to Redis on behalf of the sweep: with a deadline of its own, and when sweeping has rested enough to
// keep to its share of Redis' time. Calls should be small: one page, one pipeline; and not be made in one another.
func (p *Pass) Call(ctx context.Context, f func(ctx context.Context) error) error {
	p.paging = false
	held, err := p.t.call(ctx, f)
	if p.paging && err == nil {
		p.t.pages.Took(held)
	}
	return err
}

// Judge says of each owner whether its heartbeat exists, asking once a pass. An owner of whom that
// cannot be read is Unreadable: keep. This replica itself lives. The error is for when nothing could be read.
func (p *Pass) Judge(ctx context.Context, owners []string) (map[string]Liveness, error) {
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
			found, _, err := p.t.j.heartbeats(ctx, unknown)
			for id, liveness := range found {
				p.judged[id] = liveness
			}
			if err == nil {
				err = p.t.watch.judged(ctx, found, p.scanning)
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

// Reap has one batch judged again and deleted by the server, in one atomic step, and recorded in the audit. The
// answer is Done, or Alive: the owner is back, leave it alone for this pass. Errors: HeldError, ErrFenced,
// ErrRefused; after any other the batch's fate is unknown, it will be asked for again, and the pass is to end.
// In a dry run everything is condemned and nothing sent: Done with nothing deleted.
func (p *Pass) Reap(ctx context.Context, b Batch) (registry.Answer, error) {
	n := len(b.Items)
	if most := p.t.j.cfg.DeleteBatch; n == 0 || n > most {
		return registry.Answer{}, fmt.Errorf("janitor: sweep %q: batch of %d items, want 1 to %d", p.report.Sweep, n, most)
	}
	p.report.Condemned += n
	if p.DryRun() {
		return registry.Answer{Verdict: registry.Done}, nil
	}
	failpoint.Hit(failpoint.AfterJudging)
	a, held, err := p.t.reaper.reap(ctx, p.report.Sweep, b)
	if err == nil {
		p.t.batches.Took(held)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch a.Verdict {
	case registry.Done:
		p.report.Evicted += a.Deleted
		p.progress.evicted(a.Deleted)
		p.Spared(SparedReowned, a.Reowned)
	case registry.Alive:
		p.Spared(SparedAlive, n)
	case registry.Fenced:
		p.Spared(SparedFenced, n)
	case registry.Warming:
		p.Spared(SparedWarming, n)
		p.t.j.listener.poke() // so that nobody asks in vain until it is over
		return a, &HeldError{known(a.Reason)}
	}
	return a, err
}
