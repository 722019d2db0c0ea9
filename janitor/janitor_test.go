package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestOneOfThreeLeadsAndAnotherFollows(t *testing.T) {
	inBubble(t, func(f *fleet) {
		replicas := map[string]*replica{}
		stops := map[string]func(){}
		for _, id := range []string{"r1", "r2", "r3"} {
			replicas[id] = f.replica(id, nil)
			stops[id] = replicas[id].start()
		}
		leader := func() string {
			var leaders []string
			for id, r := range replicas {
				if r.value("janitor_leader") == 1 {
					leaders = append(leaders, id)
				}
			}
			require.LessOrEqual(f, len(leaders), 1)
			if len(leaders) == 0 {
				return ""
			}
			return leaders[0]
		}
		f.eventually(func() bool { return leader() != "" })
		first := leader()

		for id, r := range replicas {
			if id == first {
				continue
			}
			var not *NotLeaderError
			_, err := r.Janitor.Sweep(f.Context(), Request{})
			require.ErrorAs(f, err, &not)
			require.Equal(f, first, not.Leader)
			require.ErrorAs(f, r.Resign(f.Context()), &not)
			f.eventually(func() bool { return r.Status().Leader == first })
		}

		f.eventually(func() bool { // on a busy machine the lease may have expired
			first = leader()
			return first != "" && replicas[first].Resign(f.Context()) == nil
		})
		f.eventually(func() bool { l := leader(); return l != "" && l != first })
		second := leader()
		before := replicas[second].Status().Epoch
		stops[second]()
		f.eventually(func() bool { l := leader(); return l != "" && l != second })
		require.Greater(f, replicas[leader()].Status().Epoch, before)
	})
}

func TestATermThatMeetsAHigherEpochInTheLogDrawsAbove(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		met := uint64(time.Now().Add(30 * 24 * time.Hour).UnixMicro()) // another clock was ahead
		f.must(f.XAdd(f.Context(), &redis.XAddArgs{Stream: f.Log(), ID: fmt.Sprint(met, "-7"), Values: []string{"count", "0"}}))
		f.entries("dead", 3)
		r := f.leader()
		require.Greater(f, r.Status().Epoch, met)
		f.has(0, "dead")
		require.Equal(f, 3, f.recorded())
	})
}

func TestAPassOnDemandEndsWithWhoAskedForIt(t *testing.T) {
	inBubble(t, func(f *fleet) {
		entered, causes := make(chan struct{}, 1), make(chan error, 1)
		first := true
		r := f.leader(func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "fake", pass: func(ctx context.Context, _ *Pass) error {
				if first {
					first = false
					return nil
				}
				entered <- struct{}{}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}}}
		})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(f.Context())
		go func() { <-entered; cancel(gone) }()
		_, err := r.Janitor.Sweep(ctx, Request{})
		require.ErrorIs(f, err, gone)
		require.ErrorIs(f, <-causes, gone)
		require.True(f, r.Status().Leading, "the term goes on")
		f.eventually(func() bool { return r.report("fake").Outcome == Lost })
		require.Contains(f, r.report("fake").Error, "abandoned by its caller")
		r.counts(0, "janitor_passes_total", "sweep", "fake", "outcome", "failed")
	})
}

func TestOneSweepAloneCanBeAskedFor(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var passes [2]atomic.Int64
		counted := func(i int) func(context.Context, *Pass) error {
			return func(context.Context, *Pass) error { passes[i].Add(1); return nil }
		}
		r := f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{
				fakeSweep{name: "one", every: time.Hour, pass: counted(0)}, fakeSweep{name: "two", every: time.Hour, pass: counted(1)},
			}
		})
		_, err := r.Janitor.Sweep(f.Context(), Request{Sweep: "three"})
		var unknown *UnknownSweepError
		require.ErrorAs(f, err, &unknown, "also on a replica that does not lead")
		require.Equal(f, &UnknownSweepError{Name: "three", Known: []string{"owners", "registry", "one", "two"}}, unknown)
		require.EqualError(f, err, `janitor: no sweep is named "three"; there are owners, registry, one, two`)

		r.leads()
		f.eventually(func() bool { return passes[0].Load() == 1 && passes[1].Load() == 1 })
		reports, err := r.Janitor.Sweep(f.Context(), Request{Sweep: "two"})
		require.NoError(f, err)
		require.Len(f, reports, 1)
		require.Equal(f, "two", reports[0].Sweep)
		require.EqualValues(f, 1, passes[0].Load())
		require.EqualValues(f, 2, passes[1].Load())
	})
}

func TestAPauseHoldsEveryLeader(t *testing.T) {
	inBubble(t, func(f *fleet) {
		other := f.replica("r2", nil) // not even running
		require.NoError(f, other.Pause(f.Context(), Pause{Who: "ops", Why: "migration"}))
		f.indexed("dead", 5)
		r := f.leader()
		for _, sweep := range []string{"owners", "registry"} {
			require.Equal(f, Held, r.report(sweep).Outcome)
			require.Equal(f, "paused", r.report(sweep).Reason)
		}
		f.eventually(func() bool { return r.Status().Paused != nil })
		require.Equal(f, "migration", r.Status().Paused.Why)
		require.GreaterOrEqual(f, r.value("janitor_held_total", "reason", "paused"), 2.0)

		require.Equal(f, 5, r.sweep(Request{DryRun: true})["registry"].Condemned, "an operator that paused may see it")
		require.Equal(f, Held, r.sweep(Request{})["registry"].Outcome)
		f.has(5, "dead")

		require.NoError(f, other.Resume(f.Context()))
		require.Equal(f, Done, r.sweep(Request{})["registry"].Outcome)
		f.has(0, "dead")
		r.Poke() // a replica learns of others' actions with its next tick
		f.eventually(func() bool { return r.Status().Paused == nil })
	})
}

func TestAPauseEndsByItselfAndMayBeWrittenByHand(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.replica("r1", nil)
		require.ErrorContains(f, r.Pause(f.Context(), Pause{Until: time.Now().Add(-time.Minute)}), "is past")
		require.NoError(f, r.Pause(f.Context(), Pause{Until: time.Now().Add(time.Hour)}))
		require.Greater(f, f.PTTL(f.Context(), f.Paused()).Val(), 50*time.Minute)
		f.do("SET", f.Paused(), "hands off")
		r.leads()
		require.Equal(f, "paused", r.sweep(Request{})["registry"].Reason)
		f.eventually(func() bool { p := r.Status().Paused; return p != nil && p.Why == "hands off" })
		f.do("DEL", f.Paused())
		f.do("RPUSH", f.Paused(), "x") // a key of another type
		require.Equal(f, "paused", r.sweep(Request{})["registry"].Reason)
		r.Poke()
		f.eventually(func() bool { p := r.Status().Paused; return p != nil && strings.Contains(p.Why, "WRONGTYPE") })
	})
}

// A pass that can judge nobody has failed. One that may not ask how much there is has not.
func TestAPassFailsIfWhatItAsksFailsUnlessItCanDoWithout(t *testing.T) {
	type row struct {
		command string
		err     error
		want    Outcome
	}
	rows(t, inBubble, map[string]row{
		"nobody can be judged":       {"pttl", io.ErrUnexpectedEOF, Failed},
		"nothing can be counted":     {"hlen", io.ErrUnexpectedEOF, Failed},
		"it is not allowed to count": {"hlen", refusal("NOPERM this user has no permissions to run the 'hlen' command"), Done},
		"all is well":                {"get", io.EOF, Done},
	}, func(f *fleet, c row) {
		var line broken
		r := f.leader(func(c *Config) { c.Client.AddHook(redistest.Intercept(line.meets)) })
		f.entries("dead", 3)
		defer line.by(c.command, c.err)()
		rep := r.sweep(Request{})["registry"]
		require.Equal(f, c.want, rep.Outcome)
		if c.want == Failed {
			require.Contains(f, rep.Error, c.err.Error())
			f.has(3, "dead")
		} else {
			f.has(0, "dead")
		}
	})
}
