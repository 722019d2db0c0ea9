package janitor

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Parts that are tested without Redis.

func TestProgressSaysHowFarAPassIs(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	g := &Pass{mark: mark{at: begun}, next: mark{at: begun}}
	require.Zero(t, g.progress(begun).Ratio(), "not known yet")
	g.AddTotal(100_000)
	g.scanned(20_000, begun.Add(4*time.Second))
	g.report.Evicted = 7
	p := g.progress(begun.Add(5 * time.Second))
	require.InDelta(t, 0.2, p.Ratio(), 1e-9)
	require.InDelta(t, 4000, p.PerSecond, 1e-9)
	require.InDelta(t, 20, p.SecondsLeft, 1e-9)
	require.Equal(t, 7, p.Evicted)

	// Slower from there on: the rate is that of the last 10 to 20 s.
	for at := 5; at <= 40; at++ {
		g.scanned(1000, begun.Add(time.Duration(at)*time.Second))
	}
	p = g.progress(begun.Add(40 * time.Second))
	require.InDelta(t, 1000, p.PerSecond, 100)
	g.scanned(100_000, begun.Add(41*time.Second))
	p = g.progress(begun.Add(42 * time.Second))
	require.InDelta(t, 1, p.Ratio(), 0, "a scan may meet more than there is")
	require.Zero(t, p.SecondsLeft)
}

func TestContendersTickLessOftenWhereManyAreListedAndLeaveNoGapAlone(t *testing.T) {
	t.Parallel()
	l := newListener(nil, 30*time.Second, slog.New(slog.DiscardHandler))
	for range 100 {
		require.InDelta(t, 10, l.wait(false).Seconds(), 5.001)
		require.Equal(t, 6*time.Second, l.wait(true))
	}
	l.last.witness.Instances = 80
	for range 100 {
		require.InDelta(t, 18, l.wait(false).Seconds(), 9.001, "never as long as GAP: the others may not contend")
		require.Equal(t, 6*time.Second, l.wait(true), "the leader lives by it")
	}
}
