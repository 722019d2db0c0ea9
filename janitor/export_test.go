package janitor

import (
	"context"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// For tests in package janitor_test, which need a registry, which imports this package.

const (
	RosterFresh  = readingFresh
	RetryMost    = retryMost
	CheckLogSize = checkLogSize
	CheckLogTrim = checkLogTrim
	LogLeast     = logLeast
)

var NotAllowed = notAllowed

// Poke makes the janitor tick at once.
func (j *Janitor) Poke() { j.listener.poke() }

// Tick listens once.
func (j *Janitor) Tick(ctx context.Context, leading bool) (guard.Witness, error) {
	if j.listener.others == nil { // it does not run
		j.listener.others = together.Join(j.cfg.Control, "ticks")
		defer func() { j.listener.others.Leave(); j.listener.others = nil }()
	}
	j.listenOnce(ctx, leading)
	h := j.listener.heard()
	return h.witness, h.err
}

func (j *Janitor) Timing() guard.Timing { return j.timing }

// CoolDown resigns, and does not contend for d.
func (j *Janitor) CoolDown(d time.Duration) { j.elector.Resign(d) }

// LookUp looks up batches of unknown fate; Accounts returns the number of open ones.
func (j *Janitor) LookUp(ctx context.Context) error { return j.ledger.lookUp(ctx) }
func (j *Janitor) Accounts() int {
	j.ledger.mu.Lock()
	defer j.ledger.mu.Unlock()
	return len(j.ledger.accounts)
}

// Pending reports whether a batch waits to be sent again.
func (j *Janitor) Pending() bool { return j.termState.Load().reaper.pending.Load() != nil }

func (j *Janitor) Heartbeats(ctx context.Context, owners []string) (map[string]time.Duration, error) {
	return j.heartbeats(ctx, owners)
}

func (j *Janitor) SweepsAre(sweeps ...Sweeper) { j.sweeps = sweeps }
func (j *Janitor) SweepCount() int             { return len(j.sweeps) }

func (p *Pass) AddTotal(n int)                                          { p.addTotal(n) }
func (p *Pass) BeginFullScan(why string)                                { p.scan.Reason = why }
func (p *Pass) Paging() guard.Paging                                    { return p.paging() }
func (p *Pass) Roster(ctx context.Context) (map[string]Liveness, error) { return p.roster(ctx) }
func (p *Pass) Forget(ctx context.Context, owner string) error          { return p.forget(ctx, owner, 0) }

// NewBatcher returns a batcher of registry entries.
func NewBatcher(p *Pass) *batcher {
	return newBatcher(newEntries(func(string, int) {})[0].(*quickWay).entries, p)
}

func (b *batcher) Add(ctx context.Context, owner, id string) error { return b.add(ctx, owner, id) }
func (b *batcher) Flush(ctx context.Context) error                 { return b.flush(ctx) }

// Term is a term that a test watches.
type Term struct{ *termState }

// PresentTerm returns the janitor's current term.
func (j *Janitor) PresentTerm() *Term { return &Term{j.termState.Load()} }

func (t *Term) Done() <-chan struct{} { return t.done }
func (t *Term) Cause() error          { return context.Cause(t.ctx) }
