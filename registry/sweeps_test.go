package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestSeriesOfOwnersLongGoneAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(Config{}, nil)
		require.NoError(t, err)
		m.evictedFrom("old", 7)
		time.Sleep(50 * time.Minute)
		m.evictedFrom("young", 1)
		require.Equal(t, 2, testutil.CollectAndCount(m.evicted))
		time.Sleep(11 * time.Minute)
		m.evictedFrom("young", 1)
		require.Equal(t, 1, testutil.CollectAndCount(m.evicted))
		for i := range 3 * ownerSeriesMax {
			m.evictedFrom(time.Duration(i).String(), 1)
		}
		require.LessOrEqual(t, testutil.CollectAndCount(m.evicted), ownerSeriesMax)
	})
}

func TestASeriesGrowsForWhatWasEvictedAndIsKeptForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(Config{}, nil)
		require.NoError(t, err)
		m.evictedFrom("none", 0)
		require.Zero(t, testutil.CollectAndCount(m.evicted))
		m.evictedFrom("old", 7)
		m.evictedFrom("old", 1)
		m.evictedFrom("no \xfftext", 1)
		require.InDelta(t, 8, testutil.ToFloat64(m.evicted.WithLabelValues("old")), 0)
		require.InDelta(t, 1, testutil.ToFloat64(m.evicted.WithLabelValues("no ?text")), 0)
		time.Sleep(ownerSeriesAge)
		m.evictedFrom("none", 0)
		require.Equal(t, 2, testutil.CollectAndCount(m.evicted))
		time.Sleep(time.Nanosecond)
		m.evictedFrom("none", 0)
		require.Zero(t, testutil.CollectAndCount(m.evicted))
		require.Empty(t, m.grew)
		for i := range ownerSeriesMax {
			m.evictedFrom(time.Duration(i).String(), 1)
			time.Sleep(time.Nanosecond)
		}
		require.Equal(t, ownerSeriesMax, testutil.CollectAndCount(m.evicted), "as many may be")
		m.evictedFrom("one more", 1)
		require.Equal(t, ownerSeriesMax*9/10, testutil.CollectAndCount(m.evicted), "the oldest tenth goes")
		require.InDelta(t, 1, testutil.ToFloat64(m.evicted.WithLabelValues("one more")), 0)
	})
}

func TestTheFullScanLetsTheQuickWayFinishButNotForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sweeps{}
		w := &scan{fullScan: &fullScan{sweeps: s}, yield: 30 * time.Second}
		waited := func() time.Duration {
			begun := time.Now()
			require.NoError(t, w.wait(t.Context()))
			return time.Since(begun)
		}
		require.Zero(t, waited())
		dead := "dead"
		s.at.Store(&dead)
		time.AfterFunc(10*time.Second, func() { s.at.Store(nil) })
		require.InDelta(t, 10, waited().Seconds(), 2*yieldFor.Seconds())
		s.at.Store(&dead)
		require.InDelta(t, 20, waited().Seconds(), 2*yieldFor.Seconds(), "half an interval a pass in all")
		require.Zero(t, waited())
	})
}

func TestAnOwnerThatCameBackDuringAScanIsNotTakenForEmpty(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &sweeps{empty: map[string]time.Time{}}
	before := map[string]time.Time{"x": now, "y": now}
	silent := map[string]time.Time{"x": now.Add(time.Second), "y": now} // x came back, and fell again
	s.scanned(before, silent)
	require.False(t, s.isEmpty("x", silent["x"]))
	require.True(t, s.isEmpty("y", silent["y"]))
	silent["y"] = now.Add(time.Minute)
	require.False(t, s.isEmpty("y", silent["y"]), "it came back later")
	delete(silent, "y")
	require.False(t, s.isEmpty("y", silent["y"]), "it lives")
}
