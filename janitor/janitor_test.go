package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestNewNamesEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	o := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	client, control := redis.NewClient(o), redis.NewClient(lease.Options(o))
	defer client.Close()
	defer control.Close()
	asItComes := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer asItComes.Close()
	reg, err := registry.New(registry.Config{Client: client, Control: control})
	require.NoError(t, err)

	_, err = New(Config{
		Control: asItComes, Registry: reg, Interval: -1, ScanCount: -1, DeleteBatch: 1001, ExistsConcurrency: -1, RedisShare: 1.5,
		Sweeps: []Sweeper{fakeSweep{name: "owners"}, fakeSweep{every: -1}, nil},
	})
	for _, said := range []string{
		"unfit Client: lease: unsafe client: there is none", "Interval is -1ns", "ScanCount is -1", "DeleteBatch is 1001", "ExistsConcurrency is -1", "RedisShare is 1.5",
		`two sweeps are named "owners"`, "a sweep has no name", "must not be negative", "a sweep is nil", "MaxRetries is 3",
	} {
		require.ErrorContains(t, err, said)
	}
}

func TestOneOfThreeLeadsAndAnotherFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
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
			require.LessOrEqual(t, len(leaders), 1)
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
			_, err := r.Janitor.Sweep(t.Context(), Request{})
			require.ErrorAs(t, err, &not)
			require.Equal(t, first, not.Leader)
			require.ErrorAs(t, r.Resign(t.Context()), &not)
			f.eventually(func() bool { return r.Status().Leader == first })
		}

		f.eventually(func() bool { // on a busy machine the lease may have expired
			first = leader()
			return first != "" && replicas[first].Resign(t.Context()) == nil
		})
		f.eventually(func() bool { l := leader(); return l != "" && l != first })
		second := leader()
		before := replicas[second].Status().Epoch
		stops[second]()
		f.eventually(func() bool { l := leader(); return l != "" && l != second })
		require.Greater(t, replicas[leader()].Status().Epoch, before)
	})
}

func TestATermThatMeetsAHigherEpochInTheLogDrawsAbove(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		met := uint64(time.Now().Add(30 * 24 * time.Hour).UnixMicro()) // another clock was ahead
		f.must(f.XAdd(t.Context(), &redis.XAddArgs{Stream: f.Log(), ID: fmt.Sprint(met, "-7"), Values: []string{"count", "0"}}))
		f.entries("dead", 3)
		r := f.replica("r1", nil)
		r.leads()
		require.Greater(t, r.Status().Epoch, met)
		require.Zero(t, f.left("dead"))
		require.Equal(t, 3, f.recorded())
	})
}

func TestAPassOnDemandEndsWithWhoAskedForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		entered, causes := make(chan struct{}, 1), make(chan error, 1)
		first := true
		r := f.replica("r1", func(c *Config) {
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
		r.leads()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-entered; cancel(gone) }()
		_, err := r.Janitor.Sweep(ctx, Request{})
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, <-causes, gone)
		require.True(t, r.Status().Leading, "the term goes on")
		f.eventually(func() bool { return r.report("fake").Outcome == Lost })
		require.Contains(t, r.report("fake").Error, "abandoned by its caller")
		require.Zero(t, r.value("janitor_passes_total", "sweep", "fake", "outcome", "failed"))
	})
}

func TestOneSweepAloneCanBeAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var passes [2]atomic.Int64
		counted := func(i int) func(context.Context, *Pass) error {
			return func(context.Context, *Pass) error { passes[i].Add(1); return nil }
		}
		r := f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{
				fakeSweep{name: "one", every: time.Hour, pass: counted(0)}, fakeSweep{name: "two", every: time.Hour, pass: counted(1)},
			}
		})
		_, err := r.Janitor.Sweep(t.Context(), Request{Sweep: "three"})
		var unknown *UnknownSweepError
		require.ErrorAs(t, err, &unknown, "also on a replica that does not lead")
		require.Equal(t, &UnknownSweepError{Name: "three", Known: []string{"owners", "registry", "one", "two"}}, unknown)
		require.EqualError(t, err, `janitor: no sweep is named "three"; there are owners, registry, one, two`)

		r.leads()
		f.eventually(func() bool { return passes[0].Load() == 1 && passes[1].Load() == 1 })
		reports, err := r.Janitor.Sweep(t.Context(), Request{Sweep: "two"})
		require.NoError(t, err)
		require.Len(t, reports, 1)
		require.Equal(t, "two", reports[0].Sweep)
		require.EqualValues(t, 1, passes[0].Load())
		require.EqualValues(t, 2, passes[1].Load())
	})
}

func TestAPauseHoldsEveryLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		other := f.replica("r2", nil) // not even running
		require.NoError(t, other.Pause(t.Context(), Pause{Who: "ops", Why: "migration"}))
		f.indexed("dead", 5)
		r := f.replica("r1", nil)
		r.leads()
		for _, sweep := range []string{"owners", "registry"} {
			require.Equal(t, Held, r.report(sweep).Outcome)
			require.Equal(t, "paused", r.report(sweep).Reason)
		}
		f.eventually(func() bool { return r.Status().Paused != nil })
		require.Equal(t, "migration", r.Status().Paused.Why)
		require.GreaterOrEqual(t, r.value("janitor_held_total", "reason", "paused"), 2.0)

		require.Equal(t, 5, r.sweep(Request{DryRun: true})["registry"].Condemned, "an operator that paused may see it")
		require.Equal(t, Held, r.sweep(Request{})["registry"].Outcome)
		require.Equal(t, 5, f.left("dead"))

		require.NoError(t, other.Resume(t.Context()))
		require.Equal(t, Done, r.sweep(Request{})["registry"].Outcome)
		require.Zero(t, f.left("dead"))
		r.Poke() // a replica learns of others' actions with its next tick
		f.eventually(func() bool { return r.Status().Paused == nil })
	})
}

func TestAPauseEndsByItselfAndMayBeWrittenByHand(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		require.ErrorContains(t, r.Pause(t.Context(), Pause{Until: time.Now().Add(-time.Minute)}), "is past")
		require.NoError(t, r.Pause(t.Context(), Pause{Until: time.Now().Add(time.Hour)}))
		require.Greater(t, f.PTTL(t.Context(), f.Paused()).Val(), 50*time.Minute)
		f.must(f.Set(t.Context(), f.Paused(), "hands off", 0))
		r.leads()
		require.Equal(t, "paused", r.sweep(Request{})["registry"].Reason)
		f.eventually(func() bool { p := r.Status().Paused; return p != nil && p.Why == "hands off" })
	})
}

func TestADryRunReportsAndDeletesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 12)
		r := f.replica("r1", func(c *Config) { c.DryRun = true; c.DeleteBatch = 5 })
		r.leads()
		for _, sweep := range []string{"owners", "registry"} {
			rep := r.report(sweep)
			require.True(t, rep.DryRun)
			require.Equal(t, Done, rep.Outcome)
			require.Equal(t, 12, rep.Condemned)
			require.Zero(t, rep.Evicted)
		}
		require.Equal(t, 12, f.left("dead"))
		require.Zero(t, f.recorded())
		require.True(t, f.SIsMember(t.Context(), f.Roster(), "dead").Val())
	})
}

func TestAGuardThatHoldsHoldsWhatLooksFreeHere(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("dead", 5)
		r.faults.set(once(func([]any) error {
			return f.Set(t.Context(), f.Witness(), "not a hash", 0).Err()
		}), nil)
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, Held, rep.Outcome)
		require.Equal(t, "gap", rep.Reason)
		require.Equal(t, map[SkipReason]int{SkipHeld: 5}, rep.Spared)
		require.Equal(t, 5, f.left("dead"))
	})
}

// A pass that can judge nobody has failed. One that may not ask how much there is has not.
func TestAPassFailsIfWhatItAsksFailsUnlessItCanDoWithout(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		err     error
		want    Outcome
	}{
		"nobody can be judged":       {"pttl", io.ErrUnexpectedEOF, Failed},
		"nothing can be counted":     {"hlen", io.ErrUnexpectedEOF, Failed},
		"it is not allowed to count": {"hlen", refusal("NOPERM this user has no permissions to run the 'hlen' command"), Done},
		"all is well":                {"get", io.EOF, Done},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				var line broken
				r := f.replica("r1", func(c *Config) { c.Client.AddHook(redistest.Intercept(line.meets)) })
				r.leads()
				f.entries("dead", 3)
				defer line.by(c.command, c.err)()
				rep := r.sweep(Request{})["registry"]
				require.Equal(t, c.want, rep.Outcome)
				if c.want == Failed {
					require.Contains(t, rep.Error, c.err.Error())
					require.Equal(t, 3, f.left("dead"))
				} else {
					require.Zero(t, f.left("dead"))
				}
			})
		})
	}
}
