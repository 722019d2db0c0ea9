package janitor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFullScanLetsTheQuickWayFinishButNotForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &entries{}
		w := &scan{fullScan: &fullScan{entries: s}, yield: 30 * time.Second}
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
	s := &entries{empty: map[string]time.Time{}}
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
