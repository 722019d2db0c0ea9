package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

func TestWhatWasLostLatelyIsAProblemForSomeMinutes(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		term := l.term(3 * time.Hour)
		at := func(ago time.Duration) time.Time { return l.now.Add(-ago) }
		death, left, alive := timeline.Death, timeline.Left, timeline.Alive
		l.evicted(term, 1, 30*time.Minute, "of-old", "owners", 500)
		l.evicted(term, 2, 4*time.Minute, "seven", "owners", 100)
		l.evicted(term, 3, 4*time.Minute, "seven", "registry", 80)
		l.evicted(term, 4, 4*time.Minute, "seven", "commands", 7)
		l.evicted(term, 5, 4*time.Minute, "in-order", "owners", 9)
		l.happened(timeline.Event{Kind: death, Instance: "of-old", At: at(30 * time.Minute)})
		l.happened(timeline.Event{Kind: death, Instance: "seven", At: at(5 * time.Minute)})
		l.happened(timeline.Event{Kind: left, Instance: "in-order", At: at(5 * time.Minute)})
		s := l.status()
		require.Len(t, s.Losses, 1)
		lost := s.Losses[0]
		require.WithinDuration(t, at(5*time.Minute), lost.At, time.Second)
		require.Equal(t, loss{Instance: "seven", At: lost.At, Silent: true, Evicted: 180, dead: true}, lost)
		says := func() string { return finding(t, s.Findings(), "losses").Sentence }
		require.Regexp(t, `^seven fell silent \S+ ago, without a goodbye; 180 of its entries were evicted\.$`, says())

		l.happened(timeline.Event{Kind: alive, Instance: "seven", At: at(3 * time.Minute)})
		l.evicted(term, 6, time.Minute, "older-writer", "registry", 1)
		s = l.status()
		require.Len(t, s.Losses, 2)
		require.Equal(t, loss{Instance: "older-writer", At: s.Losses[0].At, Evicted: 1}, s.Losses[0])
		require.True(t, s.Losses[1].Back)
		require.Contains(t, says(), "older-writer, seven were lost within the last 10m")
		require.Contains(t, says(), "181 of their entries were evicted")

		// A goodbye of a later life does not take the death back, nor does an old eviction belong to a
		// new one.
		l.happened(timeline.Event{Kind: left, Instance: "seven", At: at(2 * time.Minute)})
		l.happened(timeline.Event{Kind: death, Instance: "older-writer", At: at(30 * time.Second)})
		s = l.status()
		require.Len(t, s.Losses, 3)
		require.Equal(t, "older-writer", s.Losses[0].Instance)
		require.Zero(t, s.Losses[0].Evicted)
		require.Equal(t, 180, s.Losses[2].Evicted)
	})
}
