package janitor

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/internal/pacing"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// retryFirst and retryMost bound the time from one failure to the next try; it doubles in between.
	retryFirst = 200 * time.Millisecond
	retryMost  = 15 * time.Second
)

// term is what a tenure needs of a lease.Term, which see.
type term interface {
	Token() string
	Epoch() uint64
	Valid() bool
	Remaining() time.Duration
	Redraw(ctx context.Context, above uint64) (uint64, error)
}

// tenure is what a leader has for one term.
type tenure struct {
	j    *Janitor
	term term
	ctx  context.Context // ends with the term
	end  context.CancelCauseFunc
	done chan struct{} // closed when everything in it has ended

	// Set by open, before opened is closed.
	opened chan struct{}
	watch  *watch

	reaper  *reaper
	pages   *pacing.Size
	batches *pacing.Size
	pause   pauseCheck
	loops   []*loop

	// Touched by the witness' ticks only.
	canaryGone time.Time // since when the own heartbeat is absent; zero: it is there

	mu       sync.Mutex
	failing  time.Time       // since when the term does not open, or no audit ends well; zero: it does
	sweeping map[string]bool // owners that the quick way is at; the audit leaves them to it
}

// lead is what the elector runs while this process holds the lease. It returns nil, also when the
// term turns out to be over: then it campaigns again.
func (j *Janitor) lead(ctx context.Context, term *lease.Term) error {
	// A heartbeat that is gone under a batch is a doubt, and would hold the whole fleet: where Run and the
	// registry's end together, the registry's waits.
	defer j.cfg.Registry.Stay()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	t := newTenure(ctx, j, term, end)
	for _, s := range j.sweeps {
		t.loops = append(t.loops, newLoop(t, s))
	}
	j.tenure.Store(t)
	defer j.listener.poke() // fates that are open can be looked up soon
	defer close(t.done)
	defer j.tenure.Store(nil)

	j.listener.poke() // a leader ticks more often, and wants to know where it stands
	if !t.open() {
		return nil
	}
	var work conc.WaitGroup
	for _, l := range t.loops {
		work.Go(l.run)
	}
	work.Wait()
	return nil
}

func newTenure(ctx context.Context, j *Janitor, term term, end context.CancelCauseFunc) *tenure {
	t := &tenure{
		j: j, term: term, ctx: ctx, end: end,
		done: make(chan struct{}), opened: make(chan struct{}),
		pages:    pacing.NewSize(j.cfg.ScanCount),
		batches:  pacing.NewSize(j.cfg.DeleteBatch),
		pause:    pauseCheck{client: j.cfg.Control, layout: j.layout},
		sweeping: map[string]bool{},
	}
	t.reaper = newReaper(j.guard, term, j.ledger, j.pace, end)
	t.reaper.permit = t.permit
	return t
}

// open begins the term in the audit and takes the roster, and tries until it has or the term is over.
func (t *tenure) open() bool {
	log := t.j.log.With("epoch", t.term.Epoch())
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		err := t.tryOpen()
		if err == nil {
			t.checkProgress(false)
			close(t.opened)
			return true
		}
		if t.ctx.Err() != nil {
			return false
		}
		log.Warn("term does not open", "error", err)
		t.checkProgress(true)
		if !wait.For(t.ctx, min(pause, t.j.cfg.Interval)) {
			return false
		}
	}
}

func (t *tenure) tryOpen() error {
	l := registry.Lease{Token: t.term.Token(), Epoch: t.term.Epoch()}
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	verdict, newest, err := t.j.guard.Open(ctx, l)
	switch {
	case err != nil:
		return err
	case verdict == registry.Fenced:
		t.end(ErrFenced)
		return ErrFenced
	case verdict == registry.Stale:
		// A failover lost the epochs that the audit has met.
		if _, err := t.term.Redraw(ctx, newest); err != nil {
			return err
		}
		return t.tryOpen()
	}
	// A replica that has just started may lead before its first heartbeat has landed. Deleting then
	// would raise the canary's doubt and hold the whole fleet for WARM.
	if n, err := t.j.cfg.Control.Exists(ctx, t.j.layout.Heartbeat(t.j.instance)).Result(); err != nil || n == 0 {
		return cmp.Or(err, errNoHeartbeat)
	}
	t.watch = newWatch(t.j, l)
	_, err = t.watch.look(ctx)
	return err
}

var errNoHeartbeat = errors.New("janitor: own heartbeat is not there")

// permit is asked before each batch.
func (t *tenure) permit(ctx context.Context, owner string) error {
	if err := t.unpaused(ctx, pauseFresh); err != nil {
		return err
	}
	if owner == "" {
		return nil
	}
	return t.watch.brake(ctx)
}

// unpaused returns a HeldError while sweeping is paused, by an answer at most fresh old.
func (t *tenure) unpaused(ctx context.Context, fresh time.Duration) error {
	p, err := t.pause.ask(ctx, fresh)
	if err == nil && p != nil {
		err = &HeldError{heldPaused}
	}
	return err
}

// pass runs one pass of a sweep and makes its report.
func (t *tenure) pass(ctx context.Context, s Sweep, req Request, last Outcome) (r Report) {
	j := t.j
	r = Report{
		Sweep: s.Name(), Epoch: t.term.Epoch(), Owner: req.Owner,
		DryRun: req.DryRun || j.cfg.DryRun, Started: time.Now(),
	}
	p := &Pass{t: t, req: req, report: &r, judged: map[string]Liveness{}, progress: newProgress(&r, j.log)}
	j.begun(p.progress)
	var err error
	defer func() {
		r.Seconds = time.Since(r.Started).Seconds()
		t.conclude(&r, err)
		j.metrics.passed(&r)
		j.reported(r)
		r.log(j.log, last, err)
	}()

	if !r.DryRun {
		// What is pending may have held nobody up: its sweep may find nothing more to reap.
		if err = t.reaper.settle(ctx); err != nil && !isHeld(err) {
			return r
		}
	}
	if err = s.Pass(ctx, p); err == nil && r.Evicted > 0 {
		err = p.trimAudit(ctx)
	}
	return r
}

// call makes one call to Redis when the pace allows it, and says how long it held the server.
func (t *tenure) call(ctx context.Context, f func(ctx context.Context) error) (held time.Duration, err error) {
	leave, err := t.j.pace.Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { held = leave() }()
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err = f(callCtx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return 0, err
}

// conclude finds the outcome of a pass that ended with err.
func (t *tenure) conclude(r *Report, err error) {
	var held *HeldError
	switch {
	case t.ctx.Err() != nil || !t.term.Valid() || errors.Is(err, ErrFenced):
		r.Outcome = Lost
	case err == nil:
		r.Outcome = Done
	case errors.As(err, &held):
		r.Outcome, r.Reason = Held, held.Reason
	default:
		r.Outcome, r.Error = Failed, err.Error()
	}
	if r.Sweep != sweepRegistry {
		return
	}
	t.checkProgress(r.Outcome == Failed)
}

// checkProgress resigns a leader that fails for three intervals: another may be better placed.
// Being held is no failure, and a pass under way is judged when it ends: one that failed once, however
// long it took, is tried again here.
func (t *tenure) checkProgress(failed bool) {
	t.mu.Lock()
	if !failed {
		t.failing = time.Time{}
	} else if t.failing.IsZero() {
		t.failing = time.Now()
	}
	since := t.failing
	t.mu.Unlock()
	if failing := time.Since(since); failed && failing >= 3*t.j.cfg.Interval {
		t.resign("no pass finished for three intervals", failing)
	}
}

// sawCanary takes whether the own heartbeat is there. A leader whose heartbeat stays away deletes nothing,
// and must not keep others from it. Called by the witness' ticks.
func (t *tenure) sawCanary(there bool) {
	switch {
	case there:
		t.canaryGone = time.Time{}
	case t.canaryGone.IsZero():
		t.canaryGone = time.Now()
	default:
		// Longer than a heartbeat interval: one lost heartbeat is put back within that.
		if gone := time.Since(t.canaryGone); gone > t.j.cfg.Registry.Warm()/2 {
			t.resign("own heartbeat stays away", gone)
		}
	}
}

// takeUp notes that the quick way is at an owner, until done is called. Both ways walk in much the same order: side by
// side, half of the batches would find nothing left.
func (t *tenure) takeUp(owner string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweeping[owner] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.sweeping, owner)
	}
}

// busy tells whether the quick way is at any owner now.
func (t *tenure) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sweeping) > 0
}

// takenUp tells whether the quick way is at an owner now.
func (t *tenure) takenUp(owner string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sweeping[owner]
}

func (t *tenure) resign(why string, since time.Duration) {
	t.j.log.Warn("leader resigns and stands back", "why", why, "since", since, "epoch", t.term.Epoch())
	t.j.elector.Resign(t.j.cfg.LeaseTTL)
}

func isHeld(err error) bool {
	var held *HeldError
	return errors.As(err, &held)
}
