package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// logged writes the eviction log and the timeline like leaders.
type logged struct {
	t *testing.T
	*redis.Client
	r    *Reader
	keys guard.Layout
	now  time.Time
}

func setup(t *testing.T, w redistest.World) *logged {
	now, err := w.Client.Time(t.Context()).Result()
	require.NoError(t, err)
	r := New(w.Client, guard.Layout{Prefix: w.Prefix})
	return &logged{t: t, Client: w.Client, r: r, keys: r.keys, now: now}
}

func (l *logged) status() Status {
	l.t.Helper()
	s, err := l.r.Status(l.t.Context())
	require.NoError(l.t, err)
	return s
}

func (l *logged) doctor() Diagnosis {
	l.t.Helper()
	d, err := l.r.Doctor(l.t.Context(), 0)
	require.NoError(l.t, err)
	return d
}

func (l *logged) led() (bool, string) {
	l.t.Helper()
	led, sentence, err := l.r.Led(l.t.Context())
	require.NoError(l.t, err)
	return led, sentence
}

// watched returns the timeline of one reading.
func (l *logged) watched(w *Watch) []timeline.Event {
	l.t.Helper()
	_, err := w.Status(l.t.Context())
	require.NoError(l.t, err)
	return w.Timeline()
}

// term returns the epoch of a term that began then.
func (l *logged) term(ago time.Duration) int64 { return l.now.Add(-ago).UnixMicro() }

func (l *logged) record(id string, values ...any) {
	l.t.Helper()
	require.NoError(l.t, l.XAdd(l.t.Context(),
		&redis.XAddArgs{Stream: l.keys.Log(), ID: id, Values: values}).Err())
}

func (l *logged) evicted(term int64, n int, ago time.Duration, owner, sweep string, count int) {
	l.t.Helper()
	l.record(fmt.Sprintf("%d-%d", term, n), "at", l.now.Add(-ago).UnixMilli(), "leader", "one", "owner",
		owner,
		"sweep", sweep, "count", count, "reowned", 0, "imeis", `["356307042441013"]`)
}

func (l *logged) happened(e timeline.Event) {
	l.t.Helper()
	require.NoError(l.t, timeline.Add(l.t.Context(), l.Client, l.keys.Timeline(), e))
}

// lines abbreviates events.
func lines(events []timeline.Event) (text []string) {
	for _, e := range events {
		text = append(text, fmt.Sprintf("%s %s%s %d", e.Kind, e.Instance, e.Reason, e.Count))
	}
	return text
}

// A heartbeat's TTL is its remaining life plus its age, although the clock was read long before.
func TestASlowReadingMakesNobodyDiffer(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	l := setup(t, redistest.World{Client: server.Client(), Prefix: redistest.Prefix(t)})
	ctx := t.Context()
	require.NoError(t, l.SAdd(ctx, l.keys.Roster(), "one").Err())
	require.NoError(t, l.HSet(ctx, l.keys.Witness(), "since", l.now.UnixMilli(), "last", l.now.UnixMilli(),
		"gap", 5_000, "grace", 22_000).Err())
	l.AddHook(after(func(cmd redis.Cmder) {
		if cmd.Name() == "hlen" {
			time.Sleep(1500 * time.Millisecond) // more than the tolerance for a heartbeat's TTL
		}
	}))
	beat := fmt.Sprintf("%d/%d0000000000", l.now.UnixMilli(), l.now.UnixMicro())
	require.NoError(t, l.Set(ctx, l.keys.Heartbeat("one"), beat, 20*time.Second).Err())
	s := l.status()
	require.Equal(t, 20*time.Second, s.Witness.TTL)
	require.Len(t, s.Instances, 1)
	require.True(t, s.Instances[0].Alive)
	require.Empty(t, s.Instances[0].Differs)
}

func TestATimelineHasTheLastHourOnceHoweverManyLeadersTellIt(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		old, term := l.term(3*time.Hour), l.term(30*time.Minute)
		l.record(fmt.Sprintf("%d-0", old), "leader", "zero", "term", "zero/x")
		l.evicted(old, 1, 2*time.Hour, "long-gone", "registry", 5)
		l.evicted(old, 2, 40*time.Minute, "seven", "owners", 3)
		l.record(fmt.Sprintf("%d-0", term), "leader", "one", "term", "one/x")
		l.evicted(term, 1, 20*time.Minute, "seven", "owners", 500)
		l.evicted(term, 2, 20*time.Minute-time.Second, "seven", "owners", 44)
		l.evicted(term, 3, 19*time.Minute, "seven", "owners", 0)
		at := func(ago time.Duration) time.Time { return l.now.Add(-ago) }
		l.happened(timeline.Event{Kind: timeline.Death, Instance: "seven", At: at(41 * time.Minute)})
		l.happened(timeline.Event{Kind: timeline.Death, Instance: "seven", At: at(29 * time.Minute),
			Found: true})
		l.happened(timeline.Event{Kind: timeline.Death, Instance: "six", At: at(28 * time.Minute),
			Found: true})
		l.happened(timeline.Event{Kind: timeline.Hold, Reason: "gap", At: at(27 * time.Minute)})
		l.happened(timeline.Event{Kind: timeline.Hold, Reason: "gap", At: at(27 * time.Minute), Found: true})
		l.happened(timeline.Event{Kind: timeline.HoldOver, Reason: "gap", At: at(25 * time.Minute)})
		l.happened(timeline.Event{Kind: timeline.HoldOver, Reason: "gap", At: at(25 * time.Minute),
			Found: true})
		l.happened(timeline.Event{Kind: timeline.Pause, Who: "ann", Why: "upgrade", At: at(18 * time.Minute),
			Until: at(8 * time.Minute)})

		watch := l.r.Watch()
		s, err := watch.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{
			"death seven 0", "eviction seven 3", "term one 0", "death six 0", "hold gap 0", "hold_over gap 0",
			"eviction seven 544", "pause  0", "resume  0",
		}, lines(watch.Timeline()))
		told := watch.Timeline()
		for _, e := range told {
			require.NotEmpty(t, e.Sentence, e.Kind)
		}
		require.Equal(t, "seven fell silent", told[0].Sentence)
		require.Equal(t, "six fell silent before this term", told[3].Sentence, "since when is unknown")
		require.Len(t, s.Sweeps, 2, "also what was evicted before the last hour")
		require.Equal(t, 44, s.Sweeps[0].Count)

		l.evicted(term, 4, 18*time.Minute, "seven", "owners", 6)
		l.happened(timeline.Event{Kind: timeline.Alive, Instance: "seven"})
		told = l.watched(watch)
		require.Len(t, told, 10)
		require.Subset(t, lines(told), []string{"eviction seven 550", "alive seven 0"})
	})
}

func TestATermThatBeginsWhileTheLogIsReadIsToldOnce(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		epoch := l.term(-2 * time.Second) // after the clock that was read before
		l.record(fmt.Sprintf("%d-0", epoch), "leader", "one", "term", "one/x")
		watch := l.r.Watch()
		for range 2 {
			require.Equal(t, []string{"term one 0"}, lines(l.watched(watch)))
		}
	})
}

func TestATermThatIsOlderThanAnHourAndALogThatBeganAnewAreRead(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		days := l.term(72 * time.Hour)
		watch := l.r.Watch()
		look := func() []string {
			return lines(l.watched(watch))
		}
		require.Empty(t, look(), "there is no log yet")
		l.record(fmt.Sprintf("%d-0", days), "leader", "one", "term", "one/x")
		for n := range 3 * headsPage {
			l.evicted(days, n+1, time.Minute, "seven", "owners", 1)
		}
		require.Equal(t, []string{fmt.Sprintf("eviction seven %d", 3*headsPage)}, look())
		l.evicted(days, 3*headsPage+1, 0, "eight", "owners", 2)
		require.Equal(t, []string{fmt.Sprintf("eviction seven %d", 3*headsPage), "eviction eight 2"}, look())

		// Redis lost everything, and its clock went back.
		require.NoError(t, l.Del(t.Context(), l.keys.Log()).Err())
		lower := days - 1
		require.NoError(t, l.Set(t.Context(), l.keys.Lease(), "two/x", time.Minute).Err())
		require.NoError(t, l.Set(t.Context(), "{"+l.keys.Lease()+"}:epoch", lower, 0).Err())
		l.record(fmt.Sprintf("%d-0", lower), "leader", "two", "term", "two/x")
		l.evicted(lower, 1, 0, "nine", "owners", 7)
		look()
		require.Equal(t, []string{"eviction nine 7"}, look())
	})
}
