package janitor

import (
	"slices"
	"sync"
	"time"
)

// Why sweeping goes slower than Config.RedisShare, as counted by janitor_throttled_seconds_total.
const (
	throttledLatency   = "latency"   // small calls take longer than usual: Redis has other work
	throttledHeartbeat = "heartbeat" // a living owner's heartbeat comes late
)

const (
	throttleEvery = 200 * time.Millisecond // at most one cut in so long: from the whole to the least in three
	throttleLeast = 0.2                    // of the setting: the dead have to go
	throttleCalm  = time.Second            // without strain, before the share grows again
	throttleGrow  = 5 * time.Second        // from nothing to the whole
)

// throttle is the share of Redis' time that sweeps may take: halved while something suffers, growing
// evenly when nothing has for a while; never above the setting nor below a fifth of it. It is pure.
type throttle struct {
	most, share float64
	reason      string    // why share is below most; ""
	cut         time.Time // share was last halved
	strained    time.Time // something last suffered
	stepped     time.Time // the last step
}

// step takes what suffers now, "" if nothing does.
func (t *throttle) step(now time.Time, reason string) {
	last := t.stepped
	t.stepped = now
	if reason != "" {
		t.strained, t.reason = now, reason
		if now.Sub(t.cut) >= throttleEvery {
			t.share, t.cut = max(t.share/2, t.most*throttleLeast), now
		}
		return
	}
	if calm := t.strained.Add(throttleCalm); calm.After(last) {
		last = calm
	}
	if grown := now.Sub(last); grown > 0 {
		t.share += t.most * min(1, grown.Seconds()/throttleGrow.Seconds())
	}
	if t.share >= t.most {
		t.share, t.reason = t.most, ""
	}
}

const (
	latencyKept  = 10 // samples: a second of a pass
	latencyLeast = 5  // fewer say nothing
	latencyFresh = time.Minute
	// latencySlack is what a small call may take beyond its usual time, or half of that if it is more.
	latencySlack = 200 * time.Microsecond
	// usualSpan times usualSpans is how far the usual goes back: what lasts longer is what this
	// network and this Redis are like.
	usualSpan  = time.Minute
	usualSpans = 5
)

// latency knows what a small call takes, and whether that is more than usual. It compares upper quartiles of the last
// samples, so that neither one slow call nor one quick one means anything; the usual is the least of the
// last minutes. It is pure, and safe for concurrent use.
type latency struct {
	mu      sync.Mutex
	samples []sample // the last ones, oldest first
	begun   time.Time
	usual   []time.Duration // the least quartile of each span, the present one last
}

type sample struct {
	took time.Duration
	at   time.Time
}

// saw takes what one small call took.
func (l *latency) saw(took time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, sample{took, now})
	l.samples = l.samples[max(0, len(l.samples)-latencyKept):]
	q, ok := l.quartile(now)
	switch {
	case !ok:
	case len(l.usual) == 0 || now.Sub(l.begun) >= usualSpan:
		l.begun = now
		l.usual = append(l.usual, q)
		l.usual = l.usual[max(0, len(l.usual)-usualSpans):]
	default:
		last := len(l.usual) - 1
		l.usual[last] = min(l.usual[last], q)
	}
}

// strained tells whether small calls take clearly longer than usual.
func (l *latency) strained(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, ok := l.quartile(now)
	if !ok || len(l.usual) == 0 {
		return false
	}
	usual := slices.Min(l.usual)
	return q > usual+max(usual/2, latencySlack)
}

// now is what a small call takes at present; 0 if that is not known.
func (l *latency) now(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, _ := l.quartile(now)
	return q
}

// quartile is what three of four fresh samples do not exceed. Caller holds mu.
func (l *latency) quartile(now time.Time) (time.Duration, bool) {
	var took []time.Duration
	for _, s := range l.samples {
		if now.Sub(s.at) < latencyFresh {
			took = append(took, s.took)
		}
	}
	if len(took) < latencyLeast {
		return 0, false
	}
	slices.Sort(took)
	return took[len(took)*3/4], true
}
