package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestTheBordersOfTheConfigurationAreInIt(t *testing.T) {
	t.Parallel()
	options := func(deadline time.Duration) *redis.Options {
		return &redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
			DialTimeout: deadline, ReadTimeout: deadline, WriteTimeout: deadline, PoolTimeout: deadline,
		}
	}
	client := redis.NewClient(options(time.Second))
	defer client.Close()
	reg, err := registry.New(registry.Config{Client: client, Control: client})
	require.NoError(t, err)
	most := timing.Gap() / 2
	slow, tooSlow := redis.NewClient(options(most-time.Second)), redis.NewClient(options(most))
	retries := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer retries.Close()
	defer slow.Close()
	defer tooSlow.Close()
	for name, c := range map[string]struct {
		change func(*Config)
		says   string // "": valid
	}{
		"the largest batch":           {func(c *Config) { c.DeleteBatch = guard.MaxBatch }, ""},
		"a larger one":                {func(c *Config) { c.DeleteBatch = guard.MaxBatch + 1 }, "DeleteBatch is"},
		"a batch of one":              {func(c *Config) { c.DeleteBatch = 1 }, ""},
		"a negative batch":            {func(c *Config) { c.DeleteBatch = -1 }, "DeleteBatch is -1"},
		"a page of one":               {func(c *Config) { c.ScanCount = 1 }, ""},
		"one check at a time":         {func(c *Config) { c.ExistsConcurrency = 1 }, ""},
		"the least share":             {func(c *Config) { c.RedisShare = LeastShare }, ""},
		"less":                        {func(c *Config) { c.RedisShare = LeastShare / 2 }, "RedisShare is"},
		"all of Redis":                {func(c *Config) { c.RedisShare = 1 }, ""},
		"more":                        {func(c *Config) { c.RedisShare = 1.001 }, "RedisShare is"},
		"a Control as slow as may be": {func(c *Config) { c.Control = slow }, ""},
		"a slower one":                {func(c *Config) { c.Control = tooSlow }, "Control does not suit a GAP of 30s"},
		"no sweeps":                   {func(c *Config) { c.Sweeps = nil }, ""},
		"a client that retries":       {func(c *Config) { c.Client = retries }, "MaxRetries is 3, must be -1"},
		"a lease too short for it":    {func(c *Config) { c.LeaseTTL = time.Second }, "lease"},
		"no registry":                 {func(c *Config) { c.Registry = nil }, "Registry is missing"},
	} {
		cfg := Config{Client: client, Control: client, Registry: reg, LeaseTTL: time.Minute}
		c.change(&cfg)
		if _, err := New(cfg); c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
	}
	_, err = New(Config{ // everything that is wrong is named
		Control: retries, Registry: reg, Interval: -1, ScanCount: -1, DeleteBatch: 1001, ExistsConcurrency: -1, RedisShare: 1.5,
		Sweeps: []Sweeper{fakeSweep{name: "owners"}, fakeSweep{every: -1}, nil},
	})
	for _, said := range []string{
		"unfit Client: lease: unsafe client: there is none", "Interval is -1ns", "ScanCount is -1", "DeleteBatch is 1001",
		"ExistsConcurrency is -1", "RedisShare is 1.5", `two sweeps are named "owners"`, "a sweep has no name",
		"must not be negative", "a sweep is nil", "MaxRetries is 3",
	} {
		require.ErrorContains(t, err, said)
	}
	for namespace, prefix := range map[string]string{"": "janitor_", "chat": "chat_janitor_"} {
		metrics := prometheus.NewRegistry()
		c := Config{
			Client: client, Control: client, Registry: reg, LeaseTTL: time.Minute, Registerer: metrics, Namespace: namespace,
		}
		_, err = New(c)
		require.NoError(t, err)
		families, err := metrics.Gather()
		require.NoError(t, err)
		require.NotEmpty(t, families)
		for _, f := range families {
			require.True(t, strings.HasPrefix(f.GetName(), prefix), f.GetName())
		}
		_, err = New(c)
		require.ErrorContains(t, err, "janitor: metrics: ")
	}
}

// held is a registry that counts HoldHeartbeat.
type held struct {
	Registry
	now atomic.Int64
}

func (h *held) HoldHeartbeat() (release func()) {
	h.now.Add(1)
	return func() { h.now.Add(-1) }
}

func TestATermHoldsTheHeartbeatAndTicksWhenItBeginsAndEnds(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var began atomic.Int64
		h := &held{}
		r := f.replica("r1", func(c *Config) {
			h.Registry, c.Registry = c.Registry, h
		})
		r.SweepsAre(fakeSweep{name: "fake", every: time.Hour, pass: func(context.Context, *Pass) error {
			began.Store(time.Now().UnixNano())
			return nil
		}})
		defer r.start()()
		for range 3 {
			pass(time.Minute)
			require.Equal(f, int64(1), h.now.Load())
			require.NoError(f, r.Resign(f.Context()))
			synctest.Wait()
			require.Zero(f, h.now.Load())
			require.Equal(f, time.Now(), r.Status().Witness.LastTick, "fates that are open can be looked up")
			require.Nil(f, r.Status().Pace)
			last := began.Load()
			for began.Load() == last {
				pass(time.Millisecond)
			}
			require.InDelta(f, 0, time.Unix(0, began.Load()).Sub(r.Status().Witness.LastTick).Seconds(), 1e-3)
			require.Positive(f, r.Status().Pace.Share)
		}
	})
}

// Callers wait no longer than their context, and get the reason.
func TestWhoAsksIsToldWhyNothingCameOfIt(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.silentReplica("r1", nil) // without a heartbeat the term does not open
		done := make(chan struct{})
		r.SweepsAre(fakeSweep{name: "fake", every: time.Hour, pass: func(context.Context, *Pass) error {
			<-done
			return nil
		}})
		defer r.start()()
		pass(time.Second)
		late := errors.New("late")
		within := func() context.Context {
			ctx, cancel := context.WithTimeoutCause(f.Context(), time.Second, late)
			f.Cleanup(cancel)
			return ctx
		}
		_, err := r.Janitor.Sweep(within(), Request{})
		require.ErrorIs(f, err, late, "the term does not open")

		asked := make(chan error)
		go func() { _, err := r.Janitor.Sweep(f.Context(), Request{}); asked <- err }()
		synctest.Wait()
		require.NoError(f, r.Resign(f.Context()))
		var not *NotLeaderError
		require.ErrorAs(f, <-asked, &not, "the term is over before it is open")
		require.ErrorAs(f, r.Resign(f.Context()), &not)

		defer f.beat("r1")()
		pass(time.Minute)
		_, err = r.Janitor.Sweep(within(), Request{})
		require.ErrorIs(f, err, late, "the first pass is not over")
		go func() { _, err := r.Janitor.Sweep(f.Context(), Request{}); asked <- err }()
		synctest.Wait()
		require.ErrorIs(f, r.Resign(within()), late, "its work goes on")
		close(done)
		if err := <-asked; err != nil { // otherwise it had its pass
			require.ErrorAs(f, err, &not, "the term is over")
		}
	})
}

func TestACallThatEndsWithItsCallerSaysWhy(t *testing.T) {
	inBubble(t, func(f *fleet) {
		s := f.scripted()
		gone := errors.New("gone")
		var got error
		s.asked(Request{}, func(ctx context.Context, p *Pass) error {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, gone)
			defer cancel()
			got = p.Call(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			return nil
		})
		require.ErrorIs(f, got, gone)
		begun := time.Now()
		s.asked(Request{}, func(ctx context.Context, p *Pass) error {
			got = p.Call(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			return nil
		})
		require.ErrorIs(f, got, context.DeadlineExceeded)
		require.Equal(f, 5*time.Second, time.Since(begun), "no call takes longer")
	})
}

func TestPagesAndBatchesGetSmallerWhereTheyTakeLong(t *testing.T) {
	type row struct {
		do             func(ctx context.Context, p *Pass) error
		pages, batches bool // shrink
	}
	rows(t, inBubble, map[string]row{
		"a page of a scan": {func(ctx context.Context, p *Pass) error {
			return p.Call(ctx, func(context.Context) error { p.PageSize(); time.Sleep(time.Second); return nil })
		}, true, false},
		"another call": {func(ctx context.Context, p *Pass) error {
			p.PageSize()
			return p.Call(ctx, func(context.Context) error { time.Sleep(time.Second); return nil })
		}, false, false},
		"a page that failed": {func(ctx context.Context, p *Pass) error {
			_ = p.Call(ctx, func(context.Context) error { p.PageSize(); time.Sleep(time.Second); return io.EOF })
			return nil
		}, false, false},
		"a batch": {func(ctx context.Context, p *Pass) error { return evicts(ctx, p, "x") }, false, true},
	}, func(f *fleet, c row) {
		f.entries("dead", 1)
		s := f.scripted(func(c *Config) {
			c.Client.AddHook(slowed("evalsha", time.Second))
		})
		before := *s.Status().Pace
		for range 4 { // a single slow one means nothing
			rep := s.asked(Request{}, c.do)
			require.Equal(f, Done, rep.Outcome, rep.Error)
		}
		after := *s.Status().Pace
		require.Equal(f, c.pages, after.PageSize < before.PageSize)
		require.Equal(f, c.batches, after.BatchSize < before.BatchSize)
	})
}

func TestABatchHasItemsAndNoMoreThanAreAllowedAndAHeldOneHasTheJanitorListenAtOnce(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.entries("dead", 1)
		s := f.scripted(func(c *Config) { c.DeleteBatch = 3 })
		for n, says := range []string{"batch of 0 items, want 1 to 3", "", "", "", "batch of 4 items, want 1 to 3"} {
			rep := s.asked(Request{}, func(ctx context.Context, p *Pass) error {
				return evicts(ctx, p, strings.Split("a b c d", " ")[:n]...)
			})
			want := 0
			if says == "" {
				want = n
			}
			require.Contains(f, rep.Error, says)
			require.Equal(f, says == "", rep.Outcome == Done)
			require.Equal(f, want, rep.Condemned)
		}
		pass(time.Second)
		f.do("DEL", f.Witness())
		rep := s.asked(Request{}, func(ctx context.Context, p *Pass) error { return evicts(ctx, p, "x") })
		require.Equal(f, Held, rep.Outcome)
		synctest.Wait()
		require.Equal(f, time.Now(), s.Status().Witness.LastTick)
		require.Positive(f, s.Status().Witness.HeldFor)
	})
}

// Of thousands of owners some heartbeats are unreadable, and the roster is read in pages.
func TestALargeRosterIsReadAsFarAsItCanBe(t *testing.T) {
	inBubble(t, func(f *fleet) {
		owners := make([]string, 1200)
		members := make([]any, len(owners))
		for i := range owners {
			owners[i] = fmt.Sprintf("o%d", i)
			members[i] = owners[i]
		}
		f.must(f.SAdd(f.Context(), f.Roster(), members...))
		var first sync.Once
		r := f.silentReplica("r1", func(c *Config) {
			c.ExistsConcurrency = 1
			c.Client.AddHook(before("pttl", func() (err error) {
				first.Do(func() { err = io.ErrUnexpectedEOF })
				return err
			}))
		})
		left, err := r.Heartbeats(f.Context(), owners)
		require.NoError(f, err)
		require.Len(f, left, 1184)
		require.Zero(f, left["o1199"])
	})
}

func TestHeartbeatsAreAskedForOnlyWhereRecordsSayTooLittleAndOnceAReading(t *testing.T) {
	inBubble(t, func(f *fleet) {
		defer f.beat("other")()
		f.entries("dead", 1)
		var asked atomic.Int64
		s := f.scripted()
		s.client.AddHook(counted("pttl", &asked))
		for range 2 {
			pass(2 * beatEvery)
			f.dies("dead") // a record that is spent is deleted
			pass(beatEvery / 2)
			asked.Store(0)
			var found []map[string]Liveness
			rep := s.asked(Request{}, func(ctx context.Context, p *Pass) error {
				for _, owners := range [][]string{{"other", "dead"}, {"dead"}, {"other", "r1"}, nil} {
					some, err := p.Liveness(ctx, owners)
					if err != nil {
						return err
					}
					found = append(found, some)
				}
				return nil
			})
			require.Equal(f, Done, rep.Outcome, rep.Error)
			require.Equal(f, []map[string]Liveness{
				{"other": Alive, "dead": Dead}, {"dead": Dead}, {"other": Alive, "r1": Alive}, {},
			}, found)
			require.Equal(f, int64(1), asked.Load())
		}
	})
}

func TestATickAndWhatGoesAlongEndInTime(t *testing.T) {
	inBubble(t, func(f *fleet) {
		reg := func(c *Config) {
			own, err := registry.New(registry.Config{
				Client: c.Client, Control: c.Control, Instance: "r1", Layout: f.Layout,
				HeartbeatInterval: 4 * time.Second, HeartbeatTTL: 12 * time.Second,
			})
			require.NoError(f, err)
			c.Registry = own
			c.Control.AddHook(slowed("evalsha", time.Hour))
		}
		r := f.silentReplica("r1", reg)
		gap := r.Timing().Gap()
		require.Less(f, gap, 10*time.Second)
		begun := time.Now()
		_, err := r.Tick(f.Context(), true)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.Equal(f, gap/2, time.Since(begun), "so that another can come within the gap")
	})
}

func TestWhatFailedBeforeATermOpenedIsNoReasonToResign(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var line broken
		r := f.replica("r1", func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(redistest.Intercept(line.meets))
		})
		mend := line.by("pttl", io.ErrUnexpectedEOF)
		f.indexed("silent", 1)
		f.do("SET", f.Registry(), "not a hash")
		defer r.start()()
		pass(2*time.Minute + 40*time.Second)
		require.True(f, r.Status().Leading)
		require.Empty(f, r.Status().Sweeps)
		mend()
		pass(2*time.Minute + 40*time.Second)
		require.Equal(f, Failed, r.report("registry").Outcome)
		r.counts(0, "janitor_lease_transitions_total", "event", "released")
		pass(time.Minute)
		r.counts(1, "janitor_lease_transitions_total", "event", "released")
	})
}

func TestATermThatIsFencedEndsAtOnceWhateverItAskedFor(t *testing.T) {
	moments := map[string]bool{"before it has opened": false, "to forget an owner": true}
	rows(t, inBubble, moments, func(f *fleet, opens bool) {
		s, r := &scripted{}, f.silentReplica("r1", nil)
		r.SweepsAre(s)
		if opens { // without a heartbeat it retries
			defer f.beat("r1")()
		}
		defer r.start()()
		pass(time.Second)
		if opens {
			pass(4 * time.Second)
		}
		term := r.PresentTerm()
		f.must(f.Set(f.Context(), f.Lease(), "r2/1", time.Minute))
		if opens {
			var got error
			s.do = func(ctx context.Context, p *Pass) error { got = p.Forget(ctx, "dead"); return got }
			_, err := r.Janitor.Sweep(f.Context(), Request{})
			if not := new(NotLeaderError); err != nil {
				require.ErrorAs(f, err, &not)
			}
			synctest.Wait()
			require.ErrorIs(f, got, ErrFenced)
			require.Equal(f, Lost, r.report("scripted").Outcome)
		} else {
			pass(time.Second) // the lease is renewed later
		}
		require.ErrorIs(f, term.Cause(), ErrFenced)
		require.False(f, r.Status().Leading)
	})
}
