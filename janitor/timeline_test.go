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

	"github.com/rollcall-redis/rollcall/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/process"
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
	inWorlds(t, func(t *testing.T, f *fleet) {
		ctx := t.Context()
		f.live("b", "c", "d")
		f.indexed("before", 3) // fell before the term began
		r := f.replica("r1", nil)
		r.leads()
		f.eventually(func() bool { return f.told()["death before"].Found })

		f.indexed("b", 3)
		f.dies("b")
		f.record("c", doubt.Bye, 0, beatTTL)
		require.NoError(t, f.SRem(ctx, f.Roster(), "c").Err())
		require.NoError(t, f.Del(ctx, f.Heartbeat("c")).Err())
		f.record("d", doubt.Bye, 0, beatTTL)
		require.NoError(t, f.Del(ctx, f.Heartbeat("d")).Err())
		f.live("e")
		for _, want := range []string{"death b", "left c", "left d", "alive e"} {
			f.eventually(func() bool { _, ok := f.told()[want]; return ok })
		}
		f.eventually(func() bool { return r.scrape("janitor_evicted_total") == 6 }) // before b is back
		f.live("b")
		f.eventually(func() bool { _, ok := f.told()["alive b"]; return ok })
		told := f.told()
		require.Equal(t, "r1", told["death b"].By)
		require.False(t, told["death b"].Found)
		require.InDelta(t, 2, r.scrape("janitor_owners_died_total"), 0, "before, and b")
		for _, none := range []string{"alive r1", "alive c", "death c", "death d"} {
			require.NotContains(t, told, none)
		}
	})
}

func TestADeathIsCountedByOneLeader(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
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
		f.eventually(func() bool { return r.scrape("janitor_owners_died_total") > 0 })
		require.InDelta(t, 2, r.scrape("janitor_owners_died_total"), 0, "again and new")
	})
}

func TestTheTimelineTellsOfHoldsAndPausesAndWhoResigned(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		require.NoError(t, f.Del(t.Context(), f.Witness()).Err())
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
	inWorlds(t, func(t *testing.T, f *fleet) {
		require.NoError(t, f.Set(t.Context(), f.Timeline(), "no stream", 0).Err())
		f.indexed("dead", 10)
		var log process.Buffer
		r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.leads()
		f.eventually(func() bool { return f.left("dead") == 0 })
		f.eventually(func() bool { return strings.Contains(log.String(), "cannot write the timeline") })
		require.Equal(t, "no stream", f.Get(t.Context(), f.Timeline()).Val())
		require.NoError(t, f.Del(t.Context(), f.Timeline()).Err())
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ann", Why: "x"}))
		f.eventually(func() bool { _, ok := f.told()["pause "]; return ok })
	})
}

// unheard loses the reply of the first command with an argument, and of its pipeline.
type unheard struct {
	arg  any
	once sync.Once
}

func (u *unheard) loses(err error, cmds ...redis.Cmder) error {
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), u.arg) }) {
		u.once.Do(func() {
			err = errors.New("reply lost")
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		})
	}
	return err
}

func (*unheard) DialHook(next redis.DialHook) redis.DialHook { return next }
func (u *unheard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return u.loses(next(ctx, cmd), cmd) }
}

func (u *unheard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return u.loses(next(ctx, cmds), cmds...) }
}

// What was written is in the timeline when it is read again, as if an earlier leader had counted
// it.
func TestADeathIsCountedThoughTheTimelinesAnswerWasLost(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 1)
		r := f.replica("r1", func(c *Config) { c.Client.(*redis.Client).AddHook(&unheard{arg: "death"}) })
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
		require.InDelta(t, 1, r.scrape("janitor_owners_died_total"), 0)
	})
}

func TestAPauseThatALostAnswerEndedIsToldToHaveEnded(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", func(c *Config) { c.Control.(*redis.Client).AddHook(&unheard{arg: "del"}) })
		r.leads()
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ann", Why: "upgrade"}))
		f.eventually(func() bool { return r.Status().Paused != nil })
		require.Error(t, r.Resume(t.Context()))
		require.NoError(t, r.Resume(t.Context()))
		require.NoError(t, r.Resume(t.Context()), "there is none")
		f.eventually(func() bool { _, ok := f.told()["resume "]; return ok })
	})
}
