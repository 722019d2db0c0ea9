package janitor

import (
	"cmp"
	"context"
	"time"
)

// loop runs the passes of one sweep in one term, one after the other: the first at once, then on the
// interval, and in between those that are asked for.
type loop struct {
	t        *tenure
	sweep    Sweeper
	demands  chan demand
	interval time.Duration
	failures int     // passes in a row
	last     Outcome // of the last pass
}

// demand is a pass that somebody asked for and waits for.
type demand struct {
	ctx   context.Context // of who asked
	req   Request
	reply chan Report // with room for it
}

func newLoop(t *tenure, s Sweeper) *loop {
	return &loop{
		t: t, sweep: s, demands: make(chan demand),
		interval: cmp.Or(s.Interval(), t.j.cfg.Interval),
	}
}

// run ends with the term.
func (l *loop) run() {
	ctx := l.t.ctx
	timer := time.NewTimer(0)
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
	if r.Outcome == Failed {
		l.failures++
	} else {
		l.failures = 0
	}
	return r
}

// wait is how long to the next pass after one that has just ended: from beginning to beginning the
// interval, or sooner where the pass asked for it, but some rest in any case. After failures in a row it grows; held by a doubt, it
// goes on as soon as that can be over.
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
		if warm, _ := l.t.j.listener.warming(time.Now()); warm > 0 {
			wait = min(wait, warm+time.Millisecond)
		}
	}
	return wait
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	return min(retryFirst<<min(failures-1, 10), retryMost)
}
