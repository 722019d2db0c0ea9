package janitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// retryFirst and retryMost bound the pause after a failure; it doubles in between.
	retryFirst = 200 * time.Millisecond
	retryMost  = 15 * time.Second
	// pauseFresh is how long a reading of the pause is valid, even in the middle of a pass.
	pauseFresh = time.Second
)

type term interface {
	Token() string
	Epoch() uint64
	Valid() bool
	Remaining() time.Duration
	Redraw(ctx context.Context, above uint64) (uint64, error)
}

type termState struct {
	j    *Janitor
	term term
	ctx  context.Context
	end  context.CancelCauseFunc
	done chan struct{}

	// Set by open, before opened is closed.
	opened chan struct{}
	owners *owners

	reaper  reaper
	pages   *pacing.Size
	batches *pacing.Size
	loops   []*loop

	fullScan atomic.Pointer[FullScanStatus] // of the last that succeeded, or nil
	doubted  atomic.Pointer[[]Doubt]        // at the last reading, or nil
	former   sync.Once

	pauseMu   sync.Mutex // held during the read, which concurrent callers share
	pauseRead time.Time
	paused    bool

	failing     outage // the term does not open, or no full scan succeeds
	ownBeatGone outage
}

type outage struct {
	mu    sync.Mutex
	since time.Time
}

func (o *outage) lasts(fails bool) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !fails {
		o.since = time.Time{}
		return 0
	}
	o.since = cmp.Or(o.since, time.Now())
	return time.Since(o.since)
}

// lead is the elector's led function. It returns nil even if the term turns out to be over.
func (j *Janitor) lead(ctx context.Context, term *lease.Term) error {
	// A heartbeat that disappears during a batch raises a hold for the whole fleet. If Run and the
	// registry's Run end together, the registry must wait.
	defer j.cfg.Registry.HoldHeartbeat()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ctx, done := j.span(ctx, "term", slog.Uint64("epoch", term.Epoch()))
	defer func() { done(nil, slog.String("end", cmp.Or(context.Cause(ctx), errTermOver).Error())) }()
	t := newTermState(ctx, j, term, end)
	for _, s := range j.sweeps {
		t.loops = append(t.loops, newLoop(t, s))
	}
	j.termState.Store(t)
	defer j.listener.poke() // open fates can be looked up soon
	defer close(t.done)
	defer j.termState.Store(nil)

	j.listener.poke() // a leader ticks more often, and needs a fresh tick
	if !t.open() {
		return nil
	}
	var work conc.WaitGroup
	run := func(part func()) {
		work.Go(func() {
			defer end(nil) // if it panics; otherwise ctx has ended
			part()
		})
	}
	run(func() { t.owners.listen(ctx) })
	for _, l := range t.loops {
		run(l.run)
	}
	work.Wait()
	if errors.Is(context.Cause(ctx), context.Canceled) {
		j.notes.add(timeline.Event{Kind: timeline.Resign, Instance: j.instance, Why: "it stops"})
	}
	return nil
}

func newTermState(ctx context.Context, j *Janitor, term term, end context.CancelCauseFunc) *termState {
	t := &termState{
		j: j, term: term, ctx: ctx, end: end,
		done: make(chan struct{}), opened: make(chan struct{}),
		pages:   pacing.NewSize(j.cfg.ScanCount),
		batches: pacing.NewSize(j.cfg.DeleteBatch),
	}
	t.reaper.t = t
	return t
}

func (t *termState) open() bool {
	for tries := 1; ; tries++ {
		err := t.tryOpen()
		if err == nil {
			t.checkProgress(false)
			close(t.opened)
			return true
		}
		if t.ctx.Err() != nil {
			return false
		}
		t.j.log.Warn("could not open the term", "epoch", t.term.Epoch(), "error", err)
		t.checkProgress(true)
		if !wait.For(t.ctx, min(backoff(tries), t.j.cfg.Interval)) {
			return false
		}
	}
}

func (t *termState) tryOpen() (err error) {
	ctx, done := t.j.span(t.ctx, "open", slog.Uint64("epoch", t.term.Epoch()))
	// A new log, or a failover, may have raised the epoch meanwhile.
	defer func() { done(err, slog.Uint64("epoch", t.term.Epoch())) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return t.begin(ctx)
}

func (t *termState) begin(ctx context.Context) error {
	l := guard.Lease{Token: t.term.Token(), Epoch: t.term.Epoch()}
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
		return t.begin(ctx)
	case verdict == guard.Aside:
		t.j.log.Warn("eviction log took no more records; renamed it (check who wrote to it)",
			"key", t.j.layout.Log(), "now", t.j.layout.LogAside(l.Epoch))
	}
	// A replica that has just started may lead before its first heartbeat has landed. A delete
	// would then raise the hold self_check for the whole fleet.
	if n, err := t.j.cfg.Control.Exists(ctx, t.j.layout.Heartbeat(t.j.instance)).Result(); err != nil || n == 0 {
		return cmp.Or(err, errNoHeartbeat)
	}
	t.owners = newOwners(t, l)
	_, _, err = t.owners.members(ctx)
	return err
}

var errNoHeartbeat = errors.New("janitor: own heartbeat is missing")

// checkFormer resigns if a former primary answered: its clients dial anew, by name, and another
// replica may reach the present one already.
func (t *termState) checkFormer(err error) {
	if guard.IsFormer(err) {
		t.former.Do(func() { t.resign("a former primary answers: "+err.Error(), 0) })
	}
}

func (t *termState) pass(ctx context.Context, s Sweeper, req Request, last Outcome) *Pass {
	j, begun := t.j, time.Now()
	p := &Pass{
		t: t, req: req, logged: begun,
		report: Report{
			Sweep: s.Name(), Epoch: t.term.Epoch(), Owner: req.Owner,
			DryRun: req.DryRun || j.cfg.DryRun, Started: begun,
		},
	}
	_, p.judgesOwners = s.(interface{ judgesOwners() })
	j.begun(p)
	r := &p.report
	ctx, done := t.spanPass(ctx, s, req)
	defer func() { done(r, last) }()
	err := p.run(ctx, s)
	r.Seconds = time.Since(begun).Seconds()
	t.conclude(ctx, r, err)
	j.metrics.passed(p)
	j.reported(p)
	p.log(j.log, last, err)
	return p
}

func (p *Pass) run(ctx context.Context, s Sweeper) error {
	if !p.DryRun() {
		// The sweep of a pending batch may find nothing more to delete, and would not send it
		// again.
		err := p.t.reaper.askPending(ctx)
		if _, isHeld := errors.AsType[*HeldError](err); err != nil && !isHeld {
			return err
		}
	}
	// Batches that deleted nothing have records too.
	if err := s.Run(ctx, p); err != nil || !p.recorded {
		return err
	}
	return p.trimLog(ctx)
}

// call makes one call to Redis when the pace allows it. took receives how long a successful call
// occupied the server.
func (t *termState) call(ctx context.Context, took func(held time.Duration),
	f func(ctx context.Context) error,
) (err error) {
	leave, err := t.j.pace.Enter(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if held := leave(); err == nil && took != nil {
			took(held)
		}
	}()
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err = f(callCtx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func (t *termState) conclude(ctx context.Context, r *Report, err error) {
	held, isHeld := errors.AsType[*HeldError](err)
	switch {
	case t.ctx.Err() != nil || !t.term.Valid() || errors.Is(err, ErrFenced):
		r.Outcome = Lost
	case err == nil:
		r.Outcome = Done
	case isHeld:
		r.Outcome, r.Reason, r.Error = Held, held.Reason, held.Detail
	case ctx.Err() != nil:
		r.Outcome, r.Error = Lost, "janitor: abandoned by its caller: "+err.Error()
	default:
		r.Outcome, r.Error = Failed, err.Error()
	}
}

// checkProgress resigns after failing for three intervals: another leader may do better. A hold is
// not a failure.
func (t *termState) checkProgress(failed bool) {
	if failing := t.failing.lasts(failed); failing >= 3*t.j.cfg.Interval {
		t.resign("no pass finished for three intervals", failing)
	}
}

// checkOwnHeartbeat: a leader without a heartbeat deletes nothing, and must not keep others from
// it.
func (t *termState) checkOwnHeartbeat(there bool) {
	// Longer than a heartbeat interval, within which one lost heartbeat is restored.
	if gone := t.ownBeatGone.lasts(!there); gone > t.j.timing.Grace()/2 {
		t.resign("own heartbeat is missing", gone)
	}
}

func (t *termState) resign(why string, since time.Duration) {
	t.j.notes.add(timeline.Event{Kind: timeline.Resign, Instance: t.j.instance, Why: why})
	t.j.log.Warn("leader resigns and cools down", "why", why, "since", since, "epoch", t.term.Epoch())
	t.j.elector.Resign(t.j.cfg.LeaseTTL)
}

// loop runs the passes of one sweep in one term.
type loop struct {
	t         *termState
	sweep     Sweeper
	demands   chan demand
	interval  time.Duration
	failures  int
	last      Outcome
	fullScans bool
}

type demand struct {
	ctx   context.Context
	req   Request
	reply chan Report
}

func newLoop(t *termState, s Sweeper) *loop {
	_, fullScans := s.(interface{ FullScans() })
	return &loop{
		t: t, sweep: s, demands: make(chan demand),
		interval: cmp.Or(s.Interval(), t.j.cfg.Interval), fullScans: fullScans,
	}
}

func (l *loop) run() {
	ctx := l.t.ctx
	// Take no demand before the first pass: its caller would not know of a second one.
	wait := l.wait(l.pass(ctx, Request{}))
	due, timer := time.Now().Add(wait), time.NewTimer(wait)
	defer timer.Stop()
	next := func(wait time.Duration) {
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			next(l.wait(l.pass(ctx, Request{})))
		case d := <-l.demands:
			// It ends with the term, or when its caller stops waiting.
			passCtx, cancel := context.WithCancelCause(ctx)
			stop := context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })
			p := l.pass(passCtx, d.req)
			d.reply <- p.report
			stop()
			cancel(nil)
			// A requested pass may pull the next one forward, never push it back.
			if wait := l.wait(p); !p.again.IsZero() && wait < time.Until(due) {
				next(wait)
			}
		}
	}
}

func (l *loop) pass(ctx context.Context, req Request) *Pass {
	p := l.t.pass(ctx, l.sweep, req, l.last)
	// Passes that were interrupted or partial do not show how passes go.
	if p.report.Outcome == Lost || req.Owner != "" || req.DryRun {
		return p
	}
	l.last = p.report.Outcome
	if l.fullScans {
		l.t.checkProgress(l.last == Failed)
	}
	if l.failures++; l.last != Failed {
		l.failures = 0
	}
	return p
}

// wait counts the interval from start to start, or less if the pass asked for it. It grows with
// failures. After a hold it is at most the time until that can be over.
func (l *loop) wait(p *Pass) time.Duration {
	wait := max(l.interval-time.Since(p.report.Started), l.interval/10)
	if !p.again.IsZero() {
		wait = min(wait, max(time.Until(p.again), l.interval/50))
	}
	if l.failures > 0 {
		wait = max(wait, backoff(l.failures))
	}
	if p.report.Outcome == Held {
		if left, _ := l.t.j.listener.heard().heldFor(time.Now()); left > 0 {
			wait = min(wait, left+time.Millisecond)
		}
	}
	return wait
}

func backoff(failures int) time.Duration {
	return min(retryFirst<<min(failures-1, 10), retryMost)
}
