package registry

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestASeriesGrowsForWhatWasEvictedUntilAThousandOwnersCameAfterIt(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(Config{}, nil)
	require.NoError(t, err)
	m.evictedFrom("none", 0)
	require.Zero(t, testutil.CollectAndCount(m.evicted))
	m.evictedFrom("old", 7)
	m.evictedFrom("no \xfftext", 1)
	m.evictedFrom("old", 1)
	require.InDelta(t, 8, testutil.ToFloat64(m.evicted.WithLabelValues("old")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(m.evicted.WithLabelValues("no ?text")), 0)
	for i := range ownerSeriesMost - 1 {
		m.evictedFrom(strconv.Itoa(i), 1)
	}
	require.Equal(t, ownerSeriesMost, testutil.CollectAndCount(m.evicted))
	require.NotContains(t, m.owners, "old")
	require.Contains(t, m.owners, "no ?text")
}

func TestOnlyAYoungSocketThatANewerOneEndsIsContested(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(Config{}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		age       time.Duration
		why       error
		contested float64
	}{
		{contestedWithin + time.Second, MovedError{"x"}, 0},
		{time.Second, ErrStopping, 0},
		{time.Second, MovedError{"x"}, 1},
	} {
		claim := &Claim{
			r: &Registry{metrics: m}, made: time.Now().Add(-c.age), sock: Socket{Close: func() error { return nil }},
		}
		claim.end(c.why)
		require.InDelta(t, c.contested, testutil.ToFloat64(m.contested), 0)
	}
}
