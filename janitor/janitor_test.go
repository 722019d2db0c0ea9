package janitor_test

import (
	"context"
	"errors"
	"fmt"
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
	_, err = New(Config{Client: client, Control: control})
	require.ErrorContains(t, err, "Registry is missing")
	_, err = New(Config{Client: client, Control: control, Registry: reg, RedisShare: 1e-300})
	require.ErrorContains(t, err, "RedisShare is 1e-300, must be from 0.005 to 1")
	_, err = New(Config{Client: asItComes, Control: control, Registry: reg})
	require.ErrorIs(t, err, lease.ErrUnsafeClient)
	require.ErrorContains(t, err, "unfit Client")
	require.ErrorContains(t, err, "MaxRetries is 3, must be -1")
	_, err = New(Config{Client: client, Control: control, Registry: reg, LeaseTTL: time.Second})
	require.ErrorIs(t, err, lease.ErrUnsafeClient, "deadlines longer than the lease can bear")
	_, err = New(Config{Client: client, Control: control, Registry: reg})
	require.NoError(t, err)
}

func TestOneOfThreeLeadsAndAnotherFollows(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		replicas := map[string]*replica{}
		stops := map[string]func(){}
		for _, id := range []string{"r1", "r2", "r3"} {
			replicas[id] = f.replica(id, nil)
			stops[id] = replicas[id].start()
		}
		leader := func() string {
			var leaders []string
			for id, r := range replicas {
				if r.scrape("janitor_leader") == 1 {
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

func TestPassOutcomes(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		result := make(chan func(p *Pass) error, 1)
		result <- func(*Pass) error { return nil }
		r := f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "fake", pass: func(_ context.Context, p *Pass) error { return (<-result)(p) }}}
		})
		r.leads()
		var epoch uint64 // the pass's
		for _, c := range []struct {
			pass    func(*Pass) error
			outcome Outcome
			reason  string
		}{
			{func(p *Pass) error { epoch = p.Epoch(); return nil }, Done, ""},
			{func(*Pass) error { return &HeldError{Reason: "gap"} }, Held, "gap"},
			{func(*Pass) error { return errors.New("oh") }, Failed, ""},
			{func(*Pass) error { return ErrFenced }, Lost, ""},
		} {
			before := r.value("janitor_passes_total", "sweep", "fake", "outcome", string(c.outcome))
			result <- c.pass
			rep := r.sweep(Request{})["fake"]
			require.Equal(t, c.outcome, rep.Outcome)
			require.Equal(t, c.reason, rep.Reason)
			require.Equal(t, c.outcome == Failed, rep.Error != "")
			require.Equal(t, rep, r.report("fake"))
			require.InDelta(t, before+1, r.value("janitor_passes_total", "sweep", "fake", "outcome", string(c.outcome)), 0)
		}
		require.InDelta(t, 1, r.value("janitor_held_total", "reason", "gap"), 0)

		// The term ends during the pass: the caller learns that, or gets the reports if all passes
		// had ended.
		require.Equal(t, r.Status().Epoch, epoch)
		result <- func(p *Pass) error { p.EndTerm(errors.New("over")); return nil }
		_, err := r.Janitor.Sweep(t.Context(), Request{})
		if not := new(NotLeaderError); err != nil {
			require.ErrorAs(t, err, &not)
		}
		f.eventually(func() bool { return r.report("fake").Outcome == Lost })
		result <- func(*Pass) error { return nil }
		f.eventually(func() bool { return r.report("fake").Epoch > epoch })
	})
}

func TestATermThatMeetsAHigherEpochInTheLogDrawsAbove(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		met := uint64(time.Now().Add(30 * 24 * time.Hour).UnixMicro()) // another clock was ahead
		require.NoError(t, f.XAdd(t.Context(), &redis.XAddArgs{Stream: f.Log(), ID: fmt.Sprint(met, "-7"), Values: []string{"count", "0"}}).Err())
		f.entries("dead", 3)
		r := f.replica("r1", nil)
		r.leads()
		require.Greater(t, r.Status().Epoch, met)
		require.Zero(t, f.left("dead"))
		require.Equal(t, 3, f.recorded())
	})
}

func TestAPassOnDemandEndsWithWhoAskedForIt(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.World{Client: redistest.Shared(t).Client(), Options: redistest.Shared(t).Options(), Prefix: redistest.Prefix(t), Real: true})
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
}

func TestOneSweepAloneCanBeAskedFor(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
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
	inWorlds(t, func(t *testing.T, f *fleet) {
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
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		require.ErrorContains(t, r.Pause(t.Context(), Pause{Until: time.Now().Add(-time.Minute)}), "is past")
		require.NoError(t, r.Pause(t.Context(), Pause{Until: time.Now().Add(time.Hour)}))
		require.Greater(t, f.PTTL(t.Context(), f.Paused()).Val(), 50*time.Minute)
		require.NoError(t, f.Set(t.Context(), f.Paused(), "hands off", 0).Err())
		r.leads()
		require.Equal(t, "paused", r.sweep(Request{})["registry"].Reason)
		f.eventually(func() bool { p := r.Status().Paused; return p != nil && p.Why == "hands off" })
	})
}

func TestADryRunReportsAndDeletesNothing(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
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

func TestAWitnessHoldsForItsGracePeriod(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		require.NoError(t, f.Del(t.Context(), f.Witness()).Err())
		f.indexed("dead", 5)
		r := f.replica("r1", nil)
		r.leads()
		f.eventually(func() bool { return r.Status().Witness.HeldFor > 80 })
		reports := r.sweep(Request{})
		for _, sweep := range []string{"owners", "registry"} {
			require.Equal(t, Held, reports[sweep].Outcome)
			require.Equal(t, "gap", reports[sweep].Reason)
		}
		require.Zero(t, reports["registry"].Scanned, "a scan that cannot lead anywhere is spared")
		require.Equal(t, 5, f.left("dead"))

		require.NoError(t, f.Del(t.Context(), f.Registry(), f.Devices("dead"), f.Heartbeat("dead")).Err())
		require.NoError(t, f.SRem(t.Context(), f.Roster(), "dead").Err())
		f.eventually(func() bool { return r.report("owners").Outcome == Done })
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
