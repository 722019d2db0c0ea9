package pacing

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheShareHalvesAndGrowsWithinItsBounds(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	th := &throttle{most: 0.4, share: 0.4}
	for _, c := range []struct {
		at      time.Duration
		suffers string
		share   float64
		reason  string
	}{
		{0, "", 0.4, ""},
		{time.Second, Latency, 0.2, Latency},
		{1100 * time.Millisecond, Latency, 0.1, Latency},
		{1200 * time.Millisecond, Heartbeat, 0.08, Heartbeat}, // at least a fifth
		{time.Minute, Heartbeat, 0.08, Heartbeat},
		{61 * time.Second, "", 0.16, Heartbeat},
		{61500 * time.Millisecond, "", 0.2, Heartbeat},
		{62 * time.Second, Latency, 0.1, Latency},
		{5 * time.Minute, "", 0.4, ""},
	} {
		th.step(begin.Add(c.at), c.suffers == Heartbeat, c.suffers == Latency)
		require.InDelta(t, c.share, th.share, 1e-9, c.at)
		require.Equal(t, c.reason, th.reason, c.at)
	}
}

func TestTheUsualLatencyFallsAtOnceAndRisesSlowly(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &latency{}
	see := func(took, each time.Duration, n int) {
		for range n {
			now = now.Add(each)
			l.saw(now, took)
		}
	}
	see(time.Millisecond, time.Second, samples-1)
	require.Zero(t, l.now, "not known yet")
	see(time.Millisecond, time.Second, 1)
	require.Equal(t, time.Millisecond, l.usual)
	see(10*time.Millisecond, 100*time.Millisecond, 2)
	require.False(t, l.strained(), "two calls of ten")
	see(10*time.Millisecond, 100*time.Millisecond, 1)
	require.True(t, l.strained())
	see(10*time.Millisecond, time.Second, 60)
	require.True(t, l.strained(), "for a minute")
	see(10*time.Millisecond, time.Second, 300)
	require.False(t, l.strained(), "it is usual")
	see(time.Millisecond, 100*time.Millisecond, samples)
	require.Equal(t, time.Millisecond, l.usual)
	see(1200*time.Microsecond, 100*time.Millisecond, samples)
	require.False(t, l.strained(), "that little says nothing")

	l = &latency{}
	see(100*time.Microsecond, 100*time.Millisecond, samples)
	see(290*time.Microsecond, 100*time.Millisecond, samples)
	require.False(t, l.strained(), "nor does a fraction of a millisecond")
	see(310*time.Microsecond, 100*time.Millisecond, samples)
	require.True(t, l.strained())
}

func TestAHeartbeatComesLateWhenBeatsFail(t *testing.T) {
	t.Parallel()
	type look struct{ at, left int } // seconds
	for name, c := range map[string]struct {
		looks []look
		late  bool // at the last look
	}{
		"it beats":                          {[]look{{0, 90}, {29, 61}}, false},
		"a beat and one retry have failed":  {[]look{{0, 90}, {34, 56}}, false},
		"more have":                         {[]look{{0, 90}, {37, 53}}, true},
		"it is back":                        {[]look{{0, 90}, {40, 50}, {41, 89}}, false},
		"silent for an interval more: dead": {[]look{{0, 90}, {67, 23}}, false},
		"first seen late: it is not known":  {[]look{{0, 40}}, false},
		"another kind of writer":            {[]look{{0, 60}, {19, 41}, {20, 60}, {40, 40}}, false},
		"one more, shorter":                 {[]look{{0, 20}, {19, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heartbeats
			var late bool
			begun := time.Now()
			look := func(at int, left map[string]time.Duration) bool {
				return h.overdue(begun.Add(time.Duration(at)*time.Second), left, 30*time.Second)
			}
			for _, l := range c.looks {
				late = look(l.at, map[string]time.Duration{
					"other": 90 * time.Second, "it": time.Duration(l.left) * time.Second,
				})
			}
			require.Equal(t, c.late, late)
			require.False(t, look(100, map[string]time.Duration{"other": 90 * time.Second}))
			require.Len(t, h.of, 1, "an owner that is gone is forgotten")
		})
	}
}

// aBeat is an owner that writes its heartbeat each interval.
type aBeat struct {
	h        heartbeats
	at, beat time.Time
	ttl      time.Duration // of the next beats
	end      time.Time
	silent   bool
}

const aInterval = 30 * time.Second

// pass lets time pass, and returns how long the heartbeat was late, reading it this often.
func (a *aBeat) pass(d, each time.Duration) (late time.Duration) {
	for until := a.at.Add(d); a.at.Before(until); a.at = a.at.Add(each) {
		for !a.silent && !a.beat.Add(aInterval).After(a.at) {
			a.beat = a.beat.Add(aInterval)
			a.end = a.beat.Add(a.ttl)
		}
		if a.h.overdue(a.at, map[string]time.Duration{"it": a.end.Sub(a.at)}, aInterval) {
			late += each
		}
	}
	return late
}

// A punctual owner is late for two beats at most. An owner that falls silent is found.
func TestWhatAHeartbeatHadBeforeMakesItLateForTwoBeatsAtMost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a *aBeat){
		"nothing":                         func(*aBeat) {},
		"the clock went back a little":    func(a *aBeat) { a.end = a.end.Add(5 * time.Second) },
		"the clock went back":             func(a *aBeat) { a.end = a.end.Add(15 * time.Second) },
		"the clock went back an interval": func(a *aBeat) { a.end = a.end.Add(aInterval) },
		"the clock went back far":         func(a *aBeat) { a.end = a.end.Add(5 * aInterval / 2) },
		"the clock went on":               func(a *aBeat) { a.end = a.end.Add(-15 * time.Second) },
		"a lower TTL":                     func(a *aBeat) { a.ttl -= aInterval / 2 },
		"a much lower TTL":                func(a *aBeat) { a.ttl /= 2 },
	} {
		for _, each := range []time.Duration{1, 10, 30, 31, 120} {
			for phase := time.Duration(0); phase < 30; phase += 7 {
				t.Run(fmt.Sprintf("%s, read each %d s, %d s after a beat", name, each, phase), func(t *testing.T) {
					t.Parallel()
					each, now := each*time.Second, time.Now()
					a := &aBeat{at: now, beat: now.Add(-phase*time.Second - aInterval), ttl: 5 * aInterval}
					require.Zero(t, a.pass(time.Hour, each))
					if change(a); name == "nothing" && each < 2*aInterval {
						b := *a
						b.silent = true
						require.NotZero(t, b.pass(4*aInterval, each), "it is silent")
					}
					late := a.pass(2*aInterval, time.Second) // how often it is read while late
					require.LessOrEqual(t, late, 2*aInterval)
					if name == "nothing" {
						require.Zero(t, late)
					}
					require.Zero(t, a.pass(time.Hour, each))
					require.Zero(t, a.pass(2*aInterval, time.Second))
					a.silent = true
					require.InDelta(t, aInterval, a.pass(4*aInterval, time.Second), float64(3*time.Second))
				})
			}
		}
	}
}
