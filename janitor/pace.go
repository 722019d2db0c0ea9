package janitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// paceGrain: shorter waits are saved up, since a timer costs more than they are worth.
	paceGrain = time.Millisecond
	// paceLimit is the longest that one call is atoned for, and restLimit the longest that is rested at a
	// time: a Redis that stood still for seconds is not relieved by a sweep that sleeps for a minute.
	paceLimit = time.Second
	restLimit = 3 * time.Second
	// paceLeast is the part of a call that is always taken for Redis' work.
	paceLeast = 0.25
	// paceOutlier: a call that takes so many times as long as calls mostly do is not Redis' work, but a busy machine at either
	// end. The last paceSpells times are looked at, and the lower quartile taken: the noise only adds.
	paceOutlier = 4
	paceSpells  = 8
	// paceFree is the part of what a second may have that needs no rest.
	paceFree = 0.5
	// pingEvery is how often a small call is made to measure it, while sweeps make others.
	pingEvery = 100 * time.Millisecond
	// thinFresh is for how long a look at the heartbeats is good.
	thinFresh = 3 * time.Second
)

// pace keeps the share of Redis' time that all sweeps of a term take together below a bound: after a time in
// which calls of theirs kept Redis busy for d, none may begin for d * (1/share - 1). The time is taken here, less what
// a small call takes at present, which is how long the network, other clients' work and a busy machine at either end make one wait;
// not all of it, since a small call is work too; and never much more than calls mostly take. What is done in a second in which little was done needs no rest after each
// call: a small death is over at once. No second has more than the share all the same. One call is under way at a time: who else asks Redis for
// something waits for one of ours and never for two; what can overlap is what we do with the answers. The bound is throttle's,
// which falls while others suffer. All but enter is pure: told what happened when.
type pace struct {
	ping  func(ctx context.Context) error   // a small call; nil: none is measured
	small *latency                          // what it takes
	extra func(reason string, rest float64) // told the seconds of rest that a throttle adds
	gate  chan struct{}                     // a lock that a context can end the wait for: held by who rests, for all, or calls

	mu       sync.Mutex
	throttle throttle
	underway bool            // a call is
	mark     time.Time       // the time up to there has been charged
	busy     time.Duration   // with a call under way, since the last settling
	spells   []time.Duration // what the last calls took
	second   second          // what was worked lately
	owed     time.Duration   // rest; a little less than none where a timer came late
	pinged   time.Time
	thin     time.Time // when a heartbeat was last found short of life; zero: none is
}

func newPace(share float64, small *latency) *pace {
	return &pace{
		small: small, extra: func(string, float64) {},
		gate: make(chan struct{}, 1), throttle: throttle{most: share, share: share},
	}
}

// enter waits until a call may begin, or for ctx' end. The caller makes the call and then leaves.
func (p *pace) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		rest, ping := p.rest(time.Now())
		switch {
		case ping:
			p.measure(ctx)
		case rest == 0:
			p.begin(time.Now())
			return func() { p.end(time.Now()); <-p.gate }, nil
		case !wait.For(ctx, rest):
			<-p.gate
			return nil, context.Cause(ctx)
		}
		p.rested(rest)
	}
}

// rested counts what a throttle added to a rest.
func (p *pace) rested(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := &p.throttle; t.share < t.most {
		p.extra(t.reason, d.Seconds()*(1-(1/t.most-1)/(1/t.share-1)))
	}
}

// measure makes a small call. What fails is no measure: the sweep's own calls will tell.
func (p *pace) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	begun := time.Now()
	err := p.ping(ctx)
	now := time.Now()
	if err == nil {
		p.small.saw(now.Sub(begun), now)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinged = now
	p.adapt(now)
}

// looked takes whether some heartbeat was found short of life.
func (p *pace) looked(thin bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thin = (time.Time{}); thin {
		p.thin = now
	}
	p.adapt(now)
}

// adapt sets the share anew. Caller holds mu.
func (p *pace) adapt(now time.Time) {
	p.charge(now)
	p.settle(now)
	reason := ""
	switch {
	case !p.thin.IsZero() && now.Sub(p.thin) < thinFresh:
		reason = throttledHeartbeat
	case p.small.strained(now):
		reason = throttledLatency
	}
	p.throttle.step(now, reason)
}

// rest is how long to wait before a call may begin, 0 while that is too short to bother; or that a small call is to
// be measured first, with none of ours in its way.
func (p *pace) rest(now time.Time) (rest time.Duration, ping bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charge(now)
	next := pingEvery - now.Sub(p.pinged)
	if p.ping != nil && next <= 0 {
		return 0, true
	}
	worked := p.worked(now)
	rest = min(p.owed+p.due(worked, now), restLimit)
	if share := p.throttle.share; share < 1 {
		rest = max(rest, p.second.wait(now, time.Duration(share*float64(time.Second))-worked))
	}
	if rest < paceGrain {
		return 0, false
	}
	if p.ping != nil && next > paceGrain { // to measure in long rests too
		rest = min(rest, next)
	}
	return rest, false
}

// begin and end note that the call is under way.
func (p *pace) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charge(now)
	p.underway = true
}

func (p *pace) end(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charge(now)
	p.underway = false
	p.spells = append(p.spells, p.busy)
	p.spells = p.spells[max(0, len(p.spells)-paceSpells):]
	p.settle(now)
}

// charge takes note of the time up to now: with a call under way it is busy, other time pays off the rest that is owed.
// Caller holds mu.
func (p *pace) charge(now time.Time) {
	if now.Before(p.mark) { // who took the time first may come last
		return
	}
	passed := now.Sub(p.mark)
	p.mark = now
	if p.underway {
		p.busy += passed
	} else if p.owed -= passed; p.owed < -paceGrain { // long idle: old rest is no credit
		p.owed = 0
	}
}

// worked is for how long sweeps kept Redis busy since the last settling. Caller holds mu.
func (p *pace) worked(now time.Time) time.Duration {
	busy := p.busy
	if len(p.spells) == paceSpells {
		sorted := slices.Sorted(slices.Values(p.spells))
		busy = min(busy, paceOutlier*sorted[paceSpells/4])
	}
	worked := max(busy-p.small.now(now), time.Duration(paceLeast*float64(busy)))
	return min(worked, paceLimit)
}

// due is the rest that work since the last settling asks for. Caller holds mu.
func (p *pace) due(worked time.Duration, now time.Time) time.Duration {
	share := p.throttle.share
	free := time.Duration(paceFree * share * float64(time.Second))
	paid := min(worked, max(0, p.second.sum(now)+worked-free))
	return time.Duration(float64(paid) * (1/share - 1))
}

// settle makes what is due owed. Caller holds mu.
func (p *pace) settle(now time.Time) {
	worked := p.worked(now)
	p.owed = min(p.owed+p.due(worked, now), restLimit)
	p.second.add(now, worked)
	p.busy = 0
}

// share is what sweeps may take now, and why it is less than the setting; "" if it is not.
func (p *pace) share() (share float64, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttle.share, p.throttle.reason
}
