package timeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestWhatIsAddedIsReadAndWhatIsNotUnderstoodIsLeftEmpty(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx, key := t.Context(), w.Prefix+"timeline"
		until := time.UnixMilli(1893596645000)
		require.NoError(t, timeline.Add(ctx, w.Client, key, timeline.Event{
			Kind: timeline.Pause, By: "one", Who: "ann", Why: strings.Repeat("ü", 1000), Until: until,
		}))
		require.NoError(t, w.Client.XAdd(ctx, &redis.XAddArgs{
			Stream: key, Values: []any{"kind", "new", "at", "later", "other", "x"},
		}).Err())
		events, err := timeline.Read(ctx, w.Client, key, "0-0")
		require.NoError(t, err)
		require.Len(t, events, 2)
		require.Equal(t, timeline.Event{
			ID: events[0].ID, At: events[0].At, Kind: timeline.Pause, By: "one", Who: "ann",
			Why: strings.Repeat("ü", 100), Until: until,
		}, events[0], "a text is cut")
		require.False(t, events[0].At.IsZero(), "it is of the server's clock")
		require.Equal(t, timeline.Event{ID: events[1].ID, Kind: "new"}, events[1])

		after, err := timeline.Read(ctx, w.Client, key, events[1].ID)
		require.NoError(t, err)
		require.Empty(t, after)
		require.NoError(t, w.Client.Del(ctx, key).Err())
		require.NoError(t, w.Client.Set(ctx, key, "no stream", 0).Err())
		_, err = timeline.Read(ctx, w.Client, key, "0-0")
		require.ErrorContains(t, err, "timeline: read: WRONGTYPE")
		require.ErrorContains(t, timeline.Add(ctx, w.Client, key, timeline.Event{}),
			"timeline: add: WRONGTYPE")
	})
}

func TestTheStreamIsBounded(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		key := w.Prefix + "timeline"
		for range 6 {
			events := make([]timeline.Event, 500)
			for i := range events {
				events[i] = timeline.Event{Kind: timeline.Death, Instance: "x"}
			}
			require.NoError(t, timeline.Add(t.Context(), w.Client, key, events...))
		}
		require.Less(t, w.Client.XLen(t.Context(), key).Val(), int64(1200))
	})
}

func TestMinutesAreReadAndBounded(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx, key := t.Context(), w.Prefix+"minutes"
		now, err := w.Client.Time(ctx).Result()
		require.NoError(t, err)
		for i := range 400 {
			m := timeline.Minute{Entries: int64(i), Living: i % 3}
			require.NoError(t, timeline.AddMinute(ctx, w.Client, key, m))
		}
		require.Less(t, w.Client.XLen(ctx, key).Val(), int64(300))
		require.NoError(t, w.Client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"entries", "many"}}).Err())
		all, err := timeline.ReadMinutes(ctx, w.Client, key, now)
		require.NoError(t, err)
		require.Len(t, all, timeline.Minutes-1, "an invalid one is left out")
		last := all[len(all)-1]
		require.Equal(t, []int64{399, 0}, []int64{last.Entries, int64(last.Living)})
		require.Equal(t, 2, all[len(all)-2].Living)
		require.WithinDuration(t, now, last.At, time.Minute)
		none, err := timeline.ReadMinutes(ctx, w.Client, key, now.Add(2*time.Hour))
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
