package janitor

import (
	"context"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// paceGrain: shorter waits are saved up, since a timer costs more than they are worth.
	paceGrain = time.Millisecond
	// paceLimit is the longest that one call is atoned for: a Redis that stood still for seconds is
	// not relieved by a sweep that sleeps for a minute.
	paceLimit = time.Second
)

// pace keeps the share of Redis' time that all sweeps of a term take together below a bound: a call that
// took d is followed by rest for d * (1/share - 1). The time is taken here, the network's
// included, so that the share errs on the small side.
type pace struct {
	rest float64 // owed for each unit of work

	mu  sync.Mutex
	due time.Time // all rest that is owed has been taken by then
}

func newPace(share float64) *pace { return &pace{rest: 1/share - 1} }

// owe adds the rest for a call that took d and ended at now, and returns how long to wait for all
// that is owed; 0 while that is too short to bother.
func (p *pace) owe(d time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.Before(now.Add(-paceGrain)) { // long idle: nothing is owed
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(min(d, paceLimit)) * p.rest))
	if wait := p.due.Sub(now); wait >= paceGrain {
		return wait
	}
	return 0
}

// spend rests for a call that took d, or until ctx ends.
func (p *pace) spend(ctx context.Context, d time.Duration) {
	if rest := p.owe(d, time.Now()); rest > 0 {
		wait.For(ctx, rest)
	}
}
