package janitor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// told returns the timeline's events about this fleet, by kind and subject.
func (f *fleet) told() (events map[string]timeline.Event) {
	all, err := timeline.Read(f.Context(), f.Client, f.Timeline(), "0-0")
	require.NoError(f, err)
	events = map[string]timeline.Event{}
	for _, e := range all {
		events[string(e.Kind)+" "+e.Instance+e.Reason] = e
	}
	return events
}

// tells waits for an event.
func (f *fleet) tells(event string) {
	f.Helper()
	f.eventually(func() bool { _, ok := f.told()[event]; return ok })
}

func TestTheTimelineTellsWhoFellWhoLeftAndWhoCame(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.live("b", "c", "d")
		f.indexed("before", 3) // fell before the term began
		r := f.leader()
		f.eventually(func() bool { return f.told()["death before"].Found })

		f.indexed("b", 3)
		f.dies("b")
		f.record("c", doubt.Bye, 0, beatTTL)
		f.do("SREM", f.Roster(), "c")
		f.do("DEL", f.Heartbeat("c"))
		f.record("d", doubt.Bye, 0, beatTTL)
		f.do("DEL", f.Heartbeat("d"))
		f.live("e")
		for _, want := range []string{"death b", "left c", "left d", "alive e"} {
			f.tells(want)
		}
		f.eventually(func() bool { return r.value("janitor_evicted_total") == 6 }) // before b is back
		f.live("b")
		f.tells("alive b")
		told := f.told()
		require.Equal(f, "r1", told["death b"].By)
		require.False(f, told["death b"].Found)
		require.InDelta(f, 2, r.value("janitor_owners_died_total"), 0, "before, and b")
		for _, none := range []string{"alive r1", "alive c", "death c", "death d"} {
			require.NotContains(f, told, none)
		}
	})
}

func TestADeathIsCountedByOneLeader(t *testing.T) {
	inBubble(t, func(f *fleet) {
		for _, e := range []timeline.Event{
			{Kind: timeline.Death, Instance: "counted"}, {Kind: timeline.Left, Instance: "left"},
			{Kind: timeline.Death, Instance: "again"}, {Kind: timeline.Alive, Instance: "again"},
		} {
			require.NoError(f, timeline.Add(f.Context(), f.Client, f.Timeline(), e))
		}
		for _, id := range []string{"counted", "left", "again", "new"} {
			f.indexed(id, 1)
		}
		r := f.leader()
		f.eventually(func() bool { return r.value("janitor_owners_died_total") > 0 })
		require.InDelta(f, 2, r.value("janitor_owners_died_total"), 0, "again and new")
	})
}

func TestTheTimelineTellsOfHoldsAndPausesAndWhoResigned(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.leader()
		f.do("DEL", f.Witness())
		r.Poke()
		f.tells("hold gap")
		f.listenedFor(time.Hour)
		r.Poke()
		f.eventually(func() bool {
			return !f.told()["hold_over gap"].At.IsZero() &&
				!f.told()["hold_over gap"].Found
		})
		require.Equal(f, grace, f.told()["hold_over gap"].At.Sub(f.told()["hold gap"].At).Round(time.Second),
			"it ended when it had to, and not when somebody looked")

		until := time.Now().Add(time.Hour).Round(time.Second)
		require.NoError(f, r.Pause(f.Context(), Pause{Who: "ann", Why: "upgrade", Until: until}))
		require.NoError(f, r.Resume(f.Context()))
		f.eventually(func() bool { return r.Status().Paused == nil }) // no earlier look is on its way
		require.NoError(f, r.Resume(f.Context()), "there is none")
		require.NoError(f, r.Resign(f.Context()))
		f.tells("resign r1")
		pause := f.told()["pause "]
		require.Equal(f, "ann", pause.Who)
		require.Equal(f, "upgrade", pause.Why)
		require.WithinDuration(f, until, pause.Until, 0)
		resumed := 0
		all, err := timeline.Read(f.Context(), f.Client, f.Timeline(), "0-0")
		require.NoError(f, err)
		for _, e := range all {
			if e.Kind == timeline.Resume {
				resumed++
			}
		}
		require.Equal(f, 1, resumed)
	})
}

func TestATimelineThatCannotBeWrittenKeepsNothingFromBeingSwept(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.do("SET", f.Timeline(), "no stream")
		f.indexed("dead", 10)
		r := f.leader()
		f.eventually(func() bool { return f.left("dead") == 0 })
		f.eventually(func() bool { return strings.Contains(r.lines.String(), "cannot write the timeline") })
		require.Equal(f, "no stream", f.Get(f.Context(), f.Timeline()).Val())
		f.do("DEL", f.Timeline())
		require.NoError(f, r.Pause(f.Context(), Pause{Who: "ann", Why: "x"}))
		f.tells("pause ")
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
	inBubble(t, func(f *fleet) {
		f.indexed("dead", 1)
		r := f.replica("r1", func(c *Config) { c.Client.AddHook(unheard("death")) })
		stop := r.leads()
		f.eventually(func() bool {
			all, err := timeline.Read(f.Context(), f.Client, f.Timeline(), "0-0")
			require.NoError(f, err)
			n := 0
			for _, e := range all {
				if e.Kind == timeline.Death {
					n++
				}
			}
			return n == 2
		})
		stop() // it has read the answer
		r.counts(1, "janitor_owners_died_total")
	})
}

func TestAPauseThatALostAnswerEndedIsToldToHaveEnded(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.leader(func(c *Config) { c.Control.AddHook(unheard("del")) })
		require.NoError(f, r.Pause(f.Context(), Pause{Who: "ann", Why: "upgrade"}))
		f.eventually(func() bool { return r.Status().Paused != nil })
		require.Error(f, r.Resume(f.Context()))
		require.NoError(f, r.Resume(f.Context()))
		require.NoError(f, r.Resume(f.Context()), "there is none")
		f.tells("resume ")
	})
}
