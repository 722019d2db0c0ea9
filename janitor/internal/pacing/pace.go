// Package pacing keeps a janitor's sweeps from slowing down other clients of the same Redis.
//
//	pace, pages := pacing.New(pacing.Config{Share: 0.25, Probe: ping}), pacing.NewSize(1000)
//
//	leave, err := pace.Enter(ctx) // waits until a call may begin
//	if err != nil {
//		return err // ctx has ended
//	}
//	err = readPage(ctx, pages.Get())
//	if held := leave(); err == nil {
//		pages.Took(n, held)
//	}
//
// Budget: only one call runs at a time, so another client never waits for two of ours. After d of
// work, calls rest for d*(1/share-1). After half a second without work, the rest for half a
// second's share may be postponed by half a second, so that a small sweep is over at once. So no
// second has more than the share, plus one call and a millisecond.
//
// Work is Redis' own time, but a call on a busy machine is mostly waiting for a processor. So if
// Redis reports less processor time than our calls took, calls count for less.
//
// Throttle: during sweeps, ten small calls a second are measured. Each halves the share, down to a
// fifth, while they are slower than usual or a live owner's heartbeat is late. Afterwards it
// recovers within five seconds.
package pacing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	burst       = time.Second / 2        // this much of a share is worked before the first rest
	grain       = time.Millisecond       // the shortest rest: a timer costs more than it saves
	longestRest = 3 * time.Second        // a Redis that stalled gains nothing from more
	compared    = 25 * time.Millisecond  // time of calls before a comparison with Redis' own time
	leastWork   = 0.1                    // of a call at least counts as work: Redis may wait for a disk
	probeEvery  = 100 * time.Millisecond // between two small calls during sweeps

	// outlier: a call is charged at most this many times the lower quartile of the last outlierOf
	// calls. The rest is a busy machine, not Redis.
	outlier, outlierOf = 4, 8
)

// Config configures a Pace.
type Config struct {
	// Share is the most of Redis' time that all calls take in any second, above 0, up to 1.
	Share float64
	// Probe makes a small call, with its own deadline. If nil, only Observe measures the latency.
	Probe func(ctx context.Context) error
	// CPU returns the processor time that Redis has used since it started. nil, or an error:
	// unknown.
	CPU func(ctx context.Context) (time.Duration, error)
	// Throttled, if not nil, is called at the start of a rest with the part that Share alone does
	// not require.
	Throttled func(reason string, seconds float64)
}

// Pace is the gate that all calls of all sweeps go through. It is safe for concurrent use.
type Pace struct {
	cfg    Config
	turn   chan struct{} // a lock that a context can interrupt; its holder owns these:
	probed time.Time
	called time.Duration // time of calls since CPU was last read
	cpu    time.Duration // its value then; 0: unknown
	part   float64       // share of calls' time that is Redis' work

	mu       sync.Mutex
	paid     time.Time // when the rest for all work so far is over
	works    []time.Duration
	putOff   time.Time // until then the rest for a burst may be postponed
	throttle throttle
	latency  latency
	late     bool // a heartbeat was, at the last reading
}

// New returns a Pace with the whole share.
func New(c Config) *Pace {
	t := throttle{most: c.Share, share: c.Share}
	return &Pace{cfg: c, turn: make(chan struct{}, 1), throttle: t, part: 1}
}

// Enter waits until a call may begin. The caller makes one call and then calls leave, once, which
// returns how long the call occupied the server: without the latency of a small call and the wait
// for a processor. The error is the cause of ctx' end.
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
	owed := max(p.paid.Sub(begun), -grain) // timers fire late; more rest than that is not credited
	due := owed.Seconds() + work.Seconds()/p.throttle.share
	p.paid = begun.Add(time.Duration(min(due, (took+longestRest).Seconds()) * float64(time.Second)))
	return held
}

func (p *Pace) worked(d time.Duration) time.Duration { return time.Duration(p.part * float64(d)) }

// Observe takes the duration of somebody else's small call.
func (p *Pace) Observe(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.latency.saw(now, took)
	p.throttle.step(now, p.late, p.latency.strained())
}

// Late takes whether a living owner's heartbeat is late, which slows sweeping down until the next
// call.
func (p *Pace) Late(late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
	p.throttle.step(time.Now(), p.late, p.latency.strained())
}

// Share returns the current share, and why it is below Config.Share, or "".
func (p *Pace) Share() (share float64, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttle.share, p.throttle.reason
}

const (
	sizeTarget = time.Millisecond / 2 // that a call may occupy the server; twice is too long
	sizeLeast  = 50                   // below this a call costs more than its work
	sizeCalls  = 4                    // in a row: the network and a busy machine prolong single calls
)

// Size is the number of elements of a page or batch. It grows by a tenth of the maximum while a
// call of the next size would occupy the server for at most half a millisecond, and is halved when
// calls take twice as long. It is safe for concurrent use.
type Size struct {
	most int

	mu   sync.Mutex
	now  int
	slow int // consecutive slow calls
}

// NewSize returns a Size of half of most, from which one can see whether most is too much.
func NewSize(most int) *Size {
	s := &Size{most: most, now: most}
	s.halve()
	return s
}

func (s *Size) halve() { s.now = max(s.now/2, min(sizeLeast, s.most)) }

// Get returns the current size.
func (s *Size) Get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Took takes how long a call with n elements occupied the server.
func (s *Size) Took(n int, held time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held > 2*sizeTarget {
		if s.slow++; s.slow == sizeCalls {
			s.halve()
			s.slow = 0
		}
		return
	}
	s.slow = 0
	next := min(s.now+max(1, s.most/10), s.most)
	if held*time.Duration(next) <= sizeTarget*time.Duration(n) {
		s.now = next
	}
}

// Reasons for less than Config.Share.
const (
	Latency   = "latency"   // small calls are slower than usual: Redis has other work
	Heartbeat = "heartbeat" // a live owner's heartbeat is late
)

const (
	leastPart = 0.2 // of the setting: the dead must be swept
	recovery  = 5 * time.Second
)

type throttle struct {
	most, share float64
	reason      string // why share is below most, or ""
	at          time.Time
}

func (t *throttle) step(now time.Time, late, strained bool) {
	grown := t.most * now.Sub(t.at).Seconds() / recovery.Seconds()
	t.at = now
	switch {
	case late:
		t.reason, t.share = Heartbeat, max(t.share/2, t.most*leastPart)
	case strained:
		t.reason, t.share = Latency, max(t.share/2, t.most*leastPart)
	case t.share+grown < t.most:
		t.share += grown
	default:
		t.reason, t.share = "", t.most
	}
}

const (
	samples = 10 // looked at together: a single slow or quick call means nothing
	// slack is how much slower than usual a small call may be, unless half of the usual is more.
	slack = 200 * time.Microsecond
	// usualAfter is about how long a changed latency lasts until it is the usual one.
	usualAfter = 5 * time.Minute
)

// latency is the latency of small calls. It has no clock.
type latency struct {
	last       []time.Duration
	now, usual time.Duration // upper quartile of the last, and its usual value; 0: unknown
	at         time.Time     // when usual was set
}

// saw lets the usual fall at once, and rise slowly.
func (l *latency) saw(at time.Time, took time.Duration) {
	if l.last = append(l.last, took); len(l.last) < samples {
		return
	}
	l.last = l.last[len(l.last)-samples:]
	l.now = slices.Sorted(slices.Values(l.last))[samples*3/4]
	part := min(1, at.Sub(l.at).Seconds()/usualAfter.Seconds()) // 1 at first
	l.usual = min(l.now, l.usual+time.Duration(part*float64(l.now-l.usual)))
	l.at = at
}

func (l *latency) strained() bool { return l.now > l.usual+max(l.usual/2, slack) }
