package janitor

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottleHalvesAndGrowsWithinItsBounds(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	th := &throttle{most: 0.4, share: 0.4}
	for _, c := range []struct {
		at     time.Duration
		reason string
		share  float64
	}{
		{0, "", 0.4},
		{time.Second, throttledLatency, 0.2},
		{1100 * time.Millisecond, throttledLatency, 0.2}, // not so soon again
		{1200 * time.Millisecond, throttledLatency, 0.1},
		{1400 * time.Millisecond, throttledHeartbeat, 0.08}, // a fifth at least
		{time.Minute, throttledHeartbeat, 0.08},
		{61 * time.Second, "", 0.08}, // calm for a second first
		{62 * time.Second, "", 0.16},
		{62500 * time.Millisecond, "", 0.2},
		{63 * time.Second, throttledLatency, 0.1},
		{5 * time.Minute, "", 0.4},
	} {
		th.step(begin.Add(c.at), c.reason)
		require.InDelta(t, c.share, th.share, 1e-9, c.at)
	}
	require.Empty(t, th.reason)
}

func TestAHeartbeatIsThinWhenBeatsFail(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		left []time.Duration // at one look after the other
		thin bool            // at the last
	}{
		"it beats":                          {[]time.Duration{90 * second, 61 * second}, false},
		"a beat and one retry have failed":  {[]time.Duration{90 * second, 56 * second}, false},
		"more have":                         {[]time.Duration{90 * second, 53 * second}, true},
		"it is back":                        {[]time.Duration{90 * second, 50 * second, 89 * second}, false},
		"silent for an interval more: dead": {[]time.Duration{90 * second, 23 * second}, false},
		"first seen late: it is not known":  {[]time.Duration{40 * second}, false},
		"another kind of writer":            {[]time.Duration{60 * second, 41 * second, 60 * second, 40 * second}, false},
		"one more, shorter":                 {[]time.Duration{20 * second, second}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulse(30 * second)
			var thin bool
			for _, left := range c.left {
				thin = p.thin(map[string]time.Duration{"other": 90 * second, "it": left})
			}
			require.Equal(t, c.thin, thin)
			p.thin(map[string]time.Duration{"other": 90 * second})
			require.Len(t, p.most, 1, "whoever is gone is forgotten")
		})
	}
}

func TestSizesFollowWhatCallsTake(t *testing.T) {
	t.Parallel()
	s := newSize(500)
	require.Equal(t, 500, s.get())
	steps := func(want int, all ...float64) {
		t.Helper()
		for _, d := range ms(all...) {
			s.took(d)
		}
		require.Equal(t, want, s.get())
	}
	steps(500, 0.8, 9, 9, 9, 0.8, 9, 9, 9, 1.5) // not while one of four is quick
	steps(250, 3, 3, 3, 3)
	steps(125, 3, 3, 3, 3)
	steps(50, 3, 3, 3, 3, 3, 3, 3, 3)
	steps(50, 1.5, 1.5, 1.5, 1.5)
	steps(150, 0.5, 9)
	steps(500, 0.5, 9, 9, 0.5, 9, 9, 0.5)

	s = newSize(4) // whoever sets less gets it
	for range 3 * sizeCalls {
		s.took(time.Second)
	}
	require.Equal(t, 4, s.get())
}

func TestProgressSaysHowFarAPassIs(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	g := newProgress(&Report{Sweep: "registry", Started: begun}, slog.New(slog.DiscardHandler))
	require.Zero(t, g.get(begun).Ratio(), "not known yet")
	g.expect(100_000)
	g.looked(20_000, begun.Add(4*time.Second))
	g.evicted(7)
	p := g.get(begun.Add(5 * time.Second))
	require.InDelta(t, 0.2, p.Ratio(), 1e-9)
	require.InDelta(t, 4000, p.PerSecond, 1e-9)
	require.InDelta(t, 20, p.SecondsLeft, 1e-9)
	require.Equal(t, 7, p.Evicted)

	// Slower from there on: the rate is that of the last 10 to 20 s.
	for at := 5; at <= 40; at++ {
		g.looked(1000, begun.Add(time.Duration(at)*time.Second))
	}
	p = g.get(begun.Add(40 * time.Second))
	require.InDelta(t, 1000, p.PerSecond, 100)
	g.looked(100_000, begun.Add(41*time.Second))
	p = g.get(begun.Add(42 * time.Second))
	require.InDelta(t, 1, p.Ratio(), 0, "a scan may meet more than there is")
	require.Zero(t, p.SecondsLeft)
}
