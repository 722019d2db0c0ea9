package pacing

import (
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
