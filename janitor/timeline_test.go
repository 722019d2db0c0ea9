package janitor_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// told returns the timeline's events about this fleet, by kind and subject.
func (f *fleet) told() (events map[string]timeline.Event) {
	all, err := timeline.Read(f.t.Context(), f.Client, f.Timeline(), "0-0")
	require.NoError(f.t, err)
	events = map[string]timeline.Event{}
	for _, e := range all {
		events[string(e.Kind)+" "+e.Instance+e.Reason] = e
	}
	return events
}

func TestTheTimelineTellsWhoFellWhoLeftAndWhoCame(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		ctx := t.Context()
		f.live("b", "c", "d")
		f.indexed("before", 3) // fell before the term began
		r := f.replica("r1", nil)
		r.leads()
		f.eventually(func() bool { return f.told()["death before"].Found })

		f.indexed("b", 3)
		f.dies("b")
		f.record("c", doubt.Bye, 0, beatTTL)
		f.must(f.SRem(ctx, f.Roster(), "c"))
		f.must(f.Del(ctx, f.Heartbeat("c")))
		f.record("d", doubt.Bye, 0, beatTTL)
		f.must(f.Del(ctx, f.Heartbeat("d")))
		f.live("e")
		for _, want := range []string{"death b", "left c", "left d", "alive e"} {
			f.eventually(func() bool { _, ok := f.told()[want]; return ok })
		}
		f.eventually(func() bool { return r.value("janitor_evicted_total") == 6 }) // before b is back
		f.live("b")
		f.eventually(func() bool { _, ok := f.told()["alive b"]; return ok })
		told := f.told()
		require.Equal(t, "r1", told["death b"].By)
		require.False(t, told["death b"].Found)
		require.InDelta(t, 2, r.value("janitor_owners_died_total"), 0, "before, and b")
		for _, none := range []string{"alive r1", "alive c", "death c", "death d"} {
			require.NotContains(t, told, none)
		}
	})
}

func TestADeathIsCountedByOneLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		for _, e := range []timeline.Event{
			{Kind: timeline.Death, Instance: "counted"}, {Kind: timeline.Left, Instance: "left"},
			{Kind: timeline.Death, Instance: "again"}, {Kind: timeline.Alive, Instance: "again"},
		} {
			require.NoError(t, timeline.Add(t.Context(), f.Client, f.Timeline(), e))
		}
		for _, id := range []string{"counted", "left", "again", "new"} {
			f.indexed(id, 1)
		}
		r := f.replica("r1", nil)
		r.leads()
		f.eventually(func() bool { return r.value("janitor_owners_died_total") > 0 })
		require.InDelta(t, 2, r.value("janitor_owners_died_total"), 0, "again and new")
	})
}

func TestTheTimelineTellsOfHoldsAndPausesAndWhoResigned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.must(f.Del(t.Context(), f.Witness()))
		r.Poke()
		f.eventually(func() bool { _, ok := f.told()["hold gap"]; return ok })
		f.listenedFor(time.Hour)
		r.Poke()
		f.eventually(func() bool {
			return !f.told()["hold_over gap"].At.IsZero() &&
				!f.told()["hold_over gap"].Found
		})
		require.Equal(t, grace, f.told()["hold_over gap"].At.Sub(f.told()["hold gap"].At).Round(time.Second),
			"it ended when it had to, and not when somebody looked")

		until := time.Now().Add(time.Hour).Round(time.Second)
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ann", Why: "upgrade", Until: until}))
		require.NoError(t, r.Resume(t.Context()))
		f.eventually(func() bool { return r.Status().Paused == nil }) // no earlier look is on its way
		require.NoError(t, r.Resume(t.Context()), "there is none")
		require.NoError(t, r.Resign(t.Context()))
		f.eventually(func() bool { _, ok := f.told()["resign r1"]; return ok })
		pause := f.told()["pause "]
		require.Equal(t, "ann", pause.Who)
		require.Equal(t, "upgrade", pause.Why)
		require.WithinDuration(t, until, pause.Until, 0)
		resumed := 0
		all, err := timeline.Read(t.Context(), f.Client, f.Timeline(), "0-0")
		require.NoError(t, err)
		for _, e := range all {
			if e.Kind == timeline.Resume {
				resumed++
			}
		}
		require.Equal(t, 1, resumed)
	})
}

func TestATimelineThatCannotBeWrittenKeepsNothingFromBeingSwept(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.must(f.Set(t.Context(), f.Timeline(), "no stream", 0))
		f.indexed("dead", 10)
		var log process.Buffer
		r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.leads()
		f.eventually(func() bool { return f.left("dead") == 0 })
		f.eventually(func() bool { return strings.Contains(log.String(), "cannot write the timeline") })
		require.Equal(t, "no stream", f.Get(t.Context(), f.Timeline()).Val())
		f.must(f.Del(t.Context(), f.Timeline()))
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ann", Why: "x"}))
		f.eventually(func() bool { _, ok := f.told()["pause "]; return ok })
	})
}

// unheard loses the reply of the first command with an argument, and of its pipeline.
func unheard(arg any) redistest.Intercept {
	var first sync.Once
	return func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), arg) }) {
			first.Do(func() { err = redistest.Fail(cmds, errors.New("reply lost")) })
		}
		return err
	}
}

// What was written is in the timeline when it is read again, as if an earlier leader had counted
// it.
func TestADeathIsCountedThoughTheTimelinesAnswerWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 1)
		r := f.replica("r1", func(c *Config) { c.Client.AddHook(unheard("death")) })
		stop := r.leads()
		f.eventually(func() bool {
			all, err := timeline.Read(t.Context(), f.Client, f.Timeline(), "0-0")
			require.NoError(t, err)
			n := 0
			for _, e := range all {
				if e.Kind == timeline.Death {
					n++
				}
			}
			return n == 2
		})
		stop() // it has read the answer
		require.InDelta(t, 1, r.value("janitor_owners_died_total"), 0)
	})
}

func TestAPauseThatALostAnswerEndedIsToldToHaveEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", func(c *Config) { c.Control.AddHook(unheard("del")) })
		r.leads()
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ann", Why: "upgrade"}))
		f.eventually(func() bool { return r.Status().Paused != nil })
		require.Error(t, r.Resume(t.Context()))
		require.NoError(t, r.Resume(t.Context()))
		require.NoError(t, r.Resume(t.Context()), "there is none")
		f.eventually(func() bool { _, ok := f.told()["resume "]; return ok })
	})
}
