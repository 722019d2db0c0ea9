package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

var chartNow = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// hourOf is a page with these events, the oldest first.
func hourOf(minutes []timeline.Minute, hold *inspect.Hold, events ...timeline.Event) chart {
	v := pageView{Fleet: &inspect.Status{Now: chartNow, Entries: 100, Hold: hold}, minutes: minutes}
	for _, e := range events {
		v.Timeline = append([]timeline.Event{e}, v.Timeline...)
	}
	return v.Chart()
}

func before(minutes float64) time.Time {
	return chartNow.Add(-time.Duration(minutes * float64(time.Minute)))
}

func TestTheChartShadesHoldsFromTheirBeginningToTheirEnd(t *testing.T) {
	t.Parallel()
	c := hourOf(nil, &inspect.Hold{Reason: "mass_failure"},
		timeline.Event{At: before(50), Kind: timeline.HoldOver, Reason: "gap"}, // began before the hour
		timeline.Event{At: before(40), Kind: timeline.Pause},
		timeline.Event{At: before(35), Kind: timeline.Hold, Reason: "restarted"}, // its end is not recorded
		timeline.Event{At: before(30), Kind: timeline.Resume},
		timeline.Event{At: before(6), Kind: timeline.Hold, Reason: "mass_failure"})
	require.Equal(t, 26*time.Minute, c.Held)
	require.Equal(t, []box{
		{Title: "held: gap, 02:00:00 to 02:10:00", X: 0, Width: 100},
		{Title: "paused, 02:20:00 to 02:30:00", X: 200, Width: 100},
		{Title: "held: mass_failure, 02:54:00 to 03:00:00", X: 540, Width: 60},
	}, c.Holds)
}

func TestTheChartStacksTheOwnersThatLostEntriesInAMinute(t *testing.T) {
	t.Parallel()
	c := hourOf(nil, nil,
		timeline.Event{At: before(90), Kind: timeline.Eviction, Count: 7, Sentence: "long ago"},
		timeline.Event{At: before(20.5), Kind: timeline.Eviction, Count: 30, Sentence: "30 of a"},
		timeline.Event{At: before(20.2), Kind: timeline.Eviction, Count: 4, Sentence: "4 of b"},
		timeline.Event{At: before(10), Kind: timeline.Term, Instance: "one"},
		timeline.Event{At: before(5), Kind: timeline.Death, Sentence: "two fell silent"})
	require.Equal(t, []int{34, 1, 1}, []int{c.Evicted, c.Terms, c.Deaths})
	require.Equal(t, []box{
		{"evicted", "02:39:30: 30 of a", 391, chartAxis, barWidth, 30},
		{"evicted other", "02:39:48: 4 of b", 391, chartAxis + 30, barWidth, 4},
	}, c.Bars)
	require.Equal(t, []mark{{"mark", "02:50:00: one leads", 500}, {"death", "02:55:00: two fell silent", 550}}, c.Marks)
}

func TestTheChartsLineIsInterruptedWhereNobodyCounted(t *testing.T) {
	t.Parallel()
	c := hourOf([]timeline.Minute{
		{At: before(30), Entries: 50, Registered: -1}, {At: before(29), Entries: 100, Registered: 9},
		{At: before(1), Entries: 100, Registered: 0},
	}, nil)
	require.Equal(t, 2, strings.Count(c.Line, "M"), c.Line)
	require.Equal(t, "M300 41L310 6M590 6L600 6", c.Line)
	require.Equal(t, int64(9), c.Registered)
	require.True(t, c.Counted)
	require.Len(t, c.Bars, 1)
	require.Empty(t, hourOf(nil, nil).Line, "one point is no line")
	require.False(t, hourOf(nil, nil).Counted)
}
