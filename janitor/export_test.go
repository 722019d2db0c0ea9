package janitor

import (
	"context"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/pacing"
)

// What tests in package janitor_test need to see or do. They are there because they sweep a
// registry, which imports this package.

const (
	LookFresh    = lookFresh
	RetryMost    = retryMost
	CheckLogSize = checkLogSize
	CheckLogTrim = checkLogTrim
	LogLeast     = logLeast
)

var NotAllowed = notAllowed

// Poke has the janitor tick and look around at once.
func (j *Janitor) Poke() { j.listener.poke() }

// Tick listens once.
func (j *Janitor) Tick(ctx context.Context, leading bool) (guard.Witness, error) {
	j.listener.tick(ctx, leading)
	return j.listener.witness, j.listener.err
}

// NextTick is how long a leader waits until its next tick, HeldFor how long nothing can be deleted.
func (j *Janitor) NextTick() time.Duration { return j.listener.wait(true) }
func (j *Janitor) HeldFor() time.Duration {
	left, _ := j.listener.heldFor(time.Now())
	return left
}

// StandBack resigns, and does not contend for a time.
func (j *Janitor) StandBack(d time.Duration) { j.elector.Resign(d) }

// Settle looks up the batches of unknown fate, and Accounts is how many are not closed.
func (j *Janitor) Settle(ctx context.Context) error { return j.unsettled.settle(ctx) }
func (j *Janitor) Accounts() int {
	j.unsettled.mu.Lock()
	defer j.unsettled.mu.Unlock()
	return len(j.unsettled.accounts)
}

// Pending tells whether a batch waits to be asked for again.
func (j *Janitor) Pending(ctx context.Context) bool {
	r := j.termState.Load().reaper
	if r.lock(ctx) != nil {
		return false
	}
	defer r.unlock()
	return r.pending != nil
}

func (j *Janitor) Heartbeats(ctx context.Context, owners []string) (map[string]Liveness, map[string]time.Duration, error) {
	return j.heartbeats(ctx, owners)
}

func (j *Janitor) Progressing(sweep string) float64 { return j.progressing(sweep) }

// PaceIs gives it another pace.
func (j *Janitor) PaceIs(p *pacing.Pace)       { j.pace = p }
func (j *Janitor) Listed(id string) bool       { return j.termState.Load().watch.listed(id) }
func (j *Janitor) SweepsAre(sweeps ...Sweeper) { j.sweeps = sweeps }
func (j *Janitor) SweepAt(i int) Sweeper       { return j.sweeps[i] }
func (j *Janitor) SweepCount() int             { return len(j.sweeps) }

// EndTerm ends the term under a pass.
func (p *Pass) EndTerm(err error) { p.t.end(err) }

// Term is a term whose steps a test takes by itself.
type Term struct{ *termState }

// LeaseTerm is what a Term needs of a lease.Term.
type LeaseTerm = term

// PresentTerm is the term that a janitor runs.
func (j *Janitor) PresentTerm() *Term { return &Term{j.termState.Load()} }

func NewTerm(ctx context.Context, j *Janitor, l LeaseTerm, end context.CancelCauseFunc) *Term {
	return &Term{newTermState(ctx, j, l, end)}
}
func (t *Term) Open() error { return t.tryOpen() }

// Look looks at the roster, however fresh the last look is.
func (t *Term) Look(ctx context.Context) error {
	t.watch.looked = time.Time{}
	_, err := t.watch.look(ctx)
	return err
}
func (t *Term) Over() bool            { return t.ctx.Err() != nil }
func (t *Term) Done() <-chan struct{} { return t.done }
func (t *Term) Cause() error          { return context.Cause(t.ctx) }
func (t *Term) Pass(s Sweeper) Report { return t.pass(t.ctx, s, Request{}, Done) }

// Books is pendingBatches without a janitor.
type Books struct{ l *pendingBatches }

const RefusedMost = refusedMost

func NewBooks(g *guard.Guard, done func(guard.Batch, guard.Answer)) *Books {
	return &Books{newPendingBatches(g, done)}
}
func (b *Books) Open(batch guard.Batch)                     { b.l.open(batch, nil) }
func (b *Books) Refused(batch guard.Batch)                  { b.l.refused(batch) }
func (b *Books) Recorded(batch guard.Batch, a guard.Answer) { b.l.recorded(batch, a) }
func (b *Books) Settle(ctx context.Context) error           { return b.l.settle(ctx) }
func (b *Books) Unknown() int                               { return b.l.unknown() }
func (b *Books) Accounts() map[guard.BatchID]account        { return b.l.accounts }
