package janitor

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/pacing"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// retryFirst and retryMost bound the time from one failure to the next try; it doubles in between.
	retryFirst = 200 * time.Millisecond
	retryMost  = 15 * time.Second
)

// term is what a termState needs of a lease.Term, which see.
type term interface {
	Token() string
	Epoch() uint64
	Valid() bool
	Remaining() time.Duration
	Redraw(ctx context.Context, above uint64) (uint64, error)
}

// termState is what a leader has for one term.
type termState struct {
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
	ownBeatGone time.Time // since when the own heartbeat is absent; zero: it is there

	mu      sync.Mutex
	failing time.Time // since when the term does not open, or no full scan ends well; zero: it does
}

// lead is what the elector runs while this process holds the lease. It returns nil, also when the
// term turns out to be over: then it campaigns again.
func (j *Janitor) lead(ctx context.Context, term *lease.Term) error {
	// A heartbeat that is gone under a batch is a hold, and would hold the whole fleet: where Run and
	// the registry's end together, the registry's waits.
	defer j.cfg.Registry.HoldHeartbeat()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	t := newTermState(ctx, j, term, end)
	for _, s := range j.sweeps {
		t.loops = append(t.loops, newLoop(t, s))
	}
	j.termState.Store(t)
	defer j.listener.poke() // fates that are open can be looked up soon
	defer close(t.done)
	defer j.termState.Store(nil)

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

func newTermState(ctx context.Context, j *Janitor, term term, end context.CancelCauseFunc) *termState {
	t := &termState{
		j: j, term: term, ctx: ctx, end: end,
		done: make(chan struct{}), opened: make(chan struct{}),
		pages:   pacing.NewSize(j.cfg.ScanCount),
		batches: pacing.NewSize(j.cfg.DeleteBatch),
		pause:   pauseCheck{client: j.cfg.Control, layout: j.layout},
	}
	t.reaper = newReaper(j.guard, term, j.unsettled, j.pace, end)
	t.reaper.permit = t.permit
	return t
}

// open begins the term in the log and takes the roster, and tries until it has or the term is over.
func (t *termState) open() bool {
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

func (t *termState) tryOpen() error {
	l := guard.Lease{Token: t.term.Token(), Epoch: t.term.Epoch()}
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	verdict, newest, err := t.j.guard.Open(ctx, l)
	switch {
	case err != nil:
		return err
	case verdict == guard.Fenced:
		t.end(ErrFenced)
		return ErrFenced
	case verdict == guard.Stale:
		// A failover lost the epochs that the log has met.
		if _, err := t.term.Redraw(ctx, newest); err != nil {
			return err
		}
		return t.tryOpen()
	}
	// A replica that has just started may lead before its first heartbeat has landed. Deleting then
	// would raise the hold self_check and hold the whole fleet for GRACE.
	if n, err := t.j.cfg.Control.Exists(ctx, t.j.layout.Heartbeat(t.j.instance)).Result(); err != nil || n == 0 {
		return cmp.Or(err, errNoHeartbeat)
	}
	t.watch = newWatch(t.j, l)
	_, err = t.watch.look(ctx)
	return err
}

var errNoHeartbeat = errors.New("janitor: own heartbeat is not there")

// permit is asked before each batch.
func (t *termState) permit(ctx context.Context, owner string) error {
	if err := t.unpaused(ctx, pauseFresh); err != nil {
		return err
	}
	if owner == "" {
		return nil
	}
	return t.watch.believe(ctx)
}

// unpaused returns a HeldError while sweeping is paused, by an answer at most fresh old.
func (t *termState) unpaused(ctx context.Context, fresh time.Duration) error {
	p, err := t.pause.ask(ctx, fresh)
	if err == nil && p != nil {
		err = &HeldError{heldPaused}
	}
	return err
}

// pass runs one pass of a sweep and makes its report.
func (t *termState) pass(ctx context.Context, s Sweeper, req Request, last Outcome) (r Report) {
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
		r.fullScan = p.fullScan
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
	if err = s.Run(ctx, p); err == nil && r.Evicted > 0 {
		err = p.trimLog(ctx)
	}
	return r
}

// call makes one call to Redis when the pace allows it, and says how long it held the server.
func (t *termState) call(ctx context.Context, f func(ctx context.Context) error) (held time.Duration, err error) {
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
func (t *termState) conclude(r *Report, err error) {
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
}

// checkProgress resigns a leader that fails for three intervals: another may be better placed.
// Being held is no failure, and a pass under way is judged when it ends: one that failed once,
// however long it took, is tried again here.
func (t *termState) checkProgress(failed bool) {
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

// sawOwnHeartbeat takes whether the own heartbeat is there. A leader whose heartbeat stays away
// deletes nothing, and must not keep others from it. Called by the witness' ticks.
func (t *termState) sawOwnHeartbeat(there bool) {
	switch {
	case there:
		t.ownBeatGone = time.Time{}
	case t.ownBeatGone.IsZero():
		t.ownBeatGone = time.Now()
	default:
		// Longer than a heartbeat interval: one lost heartbeat is put back within that.
		if gone := time.Since(t.ownBeatGone); gone > t.j.cfg.Registry.Timing().Grace()/2 {
			t.resign("own heartbeat stays away", gone)
		}
	}
}

func (t *termState) resign(why string, since time.Duration) {
	t.j.log.Warn("leader resigns and stands back", "why", why, "since", since, "epoch", t.term.Epoch())
	t.j.elector.Resign(t.j.cfg.LeaseTTL)
}

func isHeld(err error) bool {
	var held *HeldError
	return errors.As(err, &held)
}

// loop runs the passes of one sweep in one term, one after the other: the first at once, then on
// the interval, and in between those that are asked for.
type loop struct {
	t         *termState
	sweep     Sweeper
	demands   chan demand
	interval  time.Duration
	failures  int     // passes in a row
	last      Outcome // of the last pass
	fullScans bool    // its passes are full scans
}

// demand is a pass that somebody asked for and waits for.
type demand struct {
	ctx   context.Context // of who asked
	req   Request
	reply chan Report // with room for it
}

func newLoop(t *termState, s Sweeper) *loop {
	return &loop{
		t: t, sweep: s, demands: make(chan demand),
		interval: cmp.Or(s.Interval(), t.j.cfg.Interval),
	}
}

// run ends with the term.
func (l *loop) run() {
	ctx := l.t.ctx
	// No demand comes before the first pass: who asked for one would not know of a second behind it.
	timer := time.NewTimer(l.wait(l.pass(ctx, Request{})))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r := l.pass(ctx, Request{})
			timer.Reset(l.wait(r))
		case d := <-l.demands:
			// It ends with the term, and when nobody waits for it any more.
			passCtx, cancel := context.WithCancelCause(ctx)
			stop := context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })
			d.reply <- l.pass(passCtx, d.req)
			stop()
			cancel(nil)
		}
	}
}

func (l *loop) pass(ctx context.Context, req Request) Report {
	r := l.t.pass(ctx, l.sweep, req, l.last)
	l.last = r.Outcome
	// Also a pass that failed before it could begin its full scan is one that does not end well.
	if l.fullScans = l.fullScans || r.fullScan; l.fullScans {
		l.t.checkProgress(r.Outcome == Failed)
	}
	if r.Outcome == Failed {
		l.failures++
	} else {
		l.failures = 0
	}
	return r
}

// wait is how long to the next pass after one that has just ended: from beginning to beginning the
// interval, or sooner where the pass asked for it, but some rest in any case. After failures in a
// row it grows; held by a hold, it goes on as soon as that can be over.
func (l *loop) wait(r Report) time.Duration {
	took := time.Duration(r.Seconds * float64(time.Second))
	wait := max(l.interval-took, l.interval/10)
	if !r.next.IsZero() {
		wait = min(wait, max(time.Until(r.next), l.interval/50))
	}
	if l.failures > 0 {
		wait = max(wait, backoff(l.failures))
	}
	if r.Outcome == Held {
		if warm, _ := l.t.j.listener.heldFor(time.Now()); warm > 0 {
			wait = min(wait, warm+time.Millisecond)
		}
	}
	return wait
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	return min(retryFirst<<min(failures-1, 10), retryMost)
}
