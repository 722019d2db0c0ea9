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
