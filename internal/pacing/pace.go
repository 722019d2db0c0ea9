// Package pacing keeps a janitor's sweeps from slowing down the other clients of the same Redis.
//
//	pace, pages := pacing.New(pacing.Config{Share: 0.25, Probe: ping}), pacing.NewSize(1000)
//
//	leave, err := pace.Enter(ctx) // waits until a call may begin
//	if err != nil {
//		return err // ctx is over
//	}
//	err = readPage(ctx, pages.Get())
//	if held := leave(); err == nil {
//		pages.Took(n, held)
//	}
//
// Budget: one call is under way at a time, so another client waits for one of ours and never for
// two. After d of work, calls rest for d*(1/share-1). After half a second without work the rest for
// half a second's share may be put off, for half a second: a small sweep is over at once. So no
// second has more than the share, but for one call and a millisecond. A token bucket with such a
// burst would let one and a half shares through.
//
// Work is Redis' own time. How long a call takes is known here, and on a busy machine most of that
// is waiting for a processor, on either side. So the processor time that Redis says it has used is
// compared with the time of our calls, and if it is less, a call counts for less.
//
// Throttle: ten small calls a second are measured while sweeps make calls. At each of them the
// share is halved, down to a fifth, while they take longer than usual or a living owner's heartbeat
// comes late. Then it grows back within five seconds. What lasts for about five minutes is usual.
//
// Given up: no latency is known before ten small calls. A heartbeat counts as late until all are
// read again, which sweeps do each second. Measurements do not expire, newer ones replace them.
package pacing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	burst       = time.Second / 2        // so much of a share is worked before the first rest
	grain       = time.Millisecond       // the shortest rest: a timer costs more than it saves
	longestRest = 3 * time.Second        // a Redis that stood still is not helped by more
	compared    = 25 * time.Millisecond  // of calls, at least, are compared with Redis' own time
	leastWork   = 0.1                    // of a call's time is work: Redis may wait for a disk too
	probeEvery  = 100 * time.Millisecond // between two small calls, while sweeps make calls

	// outlier: a call that takes so many times as long as the lower quartile of the last outlierOf
	// calls is charged that. More is a busy machine at either end and not Redis: noise only adds.
	outlier, outlierOf = 4, 8
)

// Config configures a Pace.
type Config struct {
	// Share is the most of Redis' time that all calls take in any second, above 0, up to 1.
	Share float64
	// Probe makes a small call, with a deadline of its own. nil: only Observe tells the latency.
	Probe func(ctx context.Context) error
	// CPU asks how much processor time Redis has used in its life. nil, or an error: not known.
	CPU func(ctx context.Context) (time.Duration, error)
	// Beat is the interval of the owners' heartbeats.
	Beat time.Duration
	// Throttled is told of rest that Share alone does not ask for, as it begins. nil: nobody is.
	Throttled func(reason string, seconds float64)
}

// Pace is the gate that all calls of all sweeps go through. It is safe for concurrent use.
type Pace struct {
	cfg    Config
	turn   chan struct{} // a lock that a context can end the wait for; these are for who has it:
	probed time.Time
	called time.Duration // the time of calls since Redis' own time was asked for
	cpu    time.Duration // what that was; 0: not known
	part   float64       // of the time of calls that is work of Redis

	mu         sync.Mutex
	paid       time.Time       // when the rest for all work so far is over
	works      []time.Duration // of the last calls
	putOff     time.Time       // until then the rest for a burst may be put off
	throttle   throttle
	latency    latency
	heartbeats heartbeats
	late       bool // one was, when they were last read
}

// New returns a Pace that begins with the whole share.
func New(c Config) *Pace {
	t := throttle{most: c.Share, share: c.Share}
	return &Pace{cfg: c, turn: make(chan struct{}, 1), throttle: t, part: 1}
}

// Enter waits until a call may begin. The caller makes one call, then leaves, once. leave returns
// for how long the call held the server: its time, less what a small call takes at present, which
// is the network and the work of others, and less the time without a processor. The error is the
// cause of ctx' end.
func (p *Pace) Enter(ctx context.Context) (leave func() (held time.Duration), err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		p.probe(ctx)
		rest := p.rest(time.Now())
		if rest == 0 {
			break
		}
		if !wait.For(ctx, rest) {
			<-p.turn
			return nil, context.Cause(ctx)
		}
	}
	begun := time.Now()
	return func() time.Duration {
		defer func() { <-p.turn }()
		return p.charge(begun, time.Now())
	}, nil
}

// probe measures a small call if it is time, with none of ours in its way.
func (p *Pace) probe(ctx context.Context) {
	begun := time.Now()
	if begun.Sub(p.probed) < probeEvery {
		return
	}
	if p.cfg.Probe != nil && p.cfg.Probe(ctx) == nil {
		p.Observe(time.Since(begun))
	}
	p.compare(ctx)
	p.probed = time.Now()
}

// compare finds out which part of the time of our calls Redis can have worked, from time to time.
// What others had it do in between counts as ours.
func (p *Pace) compare(ctx context.Context) {
	if p.cfg.CPU == nil || p.called < compared {
		return
	}
	cpu, err := p.cfg.CPU(ctx)
	p.part = 1
	if err == nil && p.cpu > 0 && cpu >= p.cpu {
		p.part = min(1, max(leastWork, float64(cpu-p.cpu)/float64(p.called)))
	}
	p.called, p.cpu = 0, cpu
}

// rest is how long to wait until a call may begin, or until the next measurement in a long rest.
func (p *Pace) rest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, t := max(p.paid.Sub(now), -burst), &p.throttle
	if rest == -burst {
		p.putOff = now.Add(burst)
	}
	if now.Before(p.putOff) {
		rest -= time.Duration((1 - t.share) * float64(burst))
	}
	if rest < grain {
		return 0
	}
	rest = min(rest, max(grain, probeEvery-now.Sub(p.probed)))
	if t.share < t.most && p.cfg.Throttled != nil {
		p.cfg.Throttled(t.reason, rest.Seconds()*(1-(1/t.most-1)/(1/t.share-1)))
	}
	return rest
}

// charge takes a call and returns for how long it held the server.
func (p *Pace) charge(begun, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := now.Sub(begun)
	held := max(0, took-p.latency.now)
	work := max(held, took/4) // a small call is some work too
	p.called += work
	held, work = p.worked(held), p.worked(work)
	p.works = append(p.works, work)
	if n := len(p.works) - outlierOf; n >= 0 {
		p.works = p.works[n:]
		work = min(work, outlier*slices.Sorted(slices.Values(p.works))[outlierOf/4])
	}
	owed := max(p.paid.Sub(begun), -grain) // a timer comes late; more rest than that is no credit
	due := owed.Seconds() + work.Seconds()/p.throttle.share
	p.paid = begun.Add(time.Duration(min(due, (took+longestRest).Seconds()) * float64(time.Second)))
	return held
}

// worked is how much of the time of calls is work of Redis.
func (p *Pace) worked(d time.Duration) time.Duration { return time.Duration(p.part * float64(d)) }

// Observe takes what a small call of somebody else took: the usual is known before the first sweep.
func (p *Pace) Observe(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.latency.saw(now, took)
	p.throttle.step(now, p.late, p.latency.strained())
}

// LateHeartbeats takes the life that the heartbeats of all owners have left, and tells whether that
// of a living owner comes late. Until the next call this slows sweeping down.
func (p *Pace) LateHeartbeats(left map[string]time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.late = p.heartbeats.overdue(now, left, p.cfg.Beat)
	p.throttle.step(now, p.late, p.latency.strained())
	return p.late
}

// Share is what sweeps may take now, and why it is less than Config.Share; "" if it is not.
func (p *Pace) Share() (share float64, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttle.share, p.throttle.reason
}
