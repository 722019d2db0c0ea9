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
	inBubble(t, func(t *testing.T, f *fleet) {
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
			require.Equal(t, int64(1), h.now.Load())
			require.NoError(t, r.Resign(t.Context()))
			synctest.Wait()
			require.Zero(t, h.now.Load())
			require.Equal(t, time.Now(), r.Status().Witness.LastTick, "fates that are open can be looked up")
			require.Nil(t, r.Status().Pace)
			last := began.Load()
			for began.Load() == last {
				pass(time.Millisecond)
			}
			require.InDelta(t, 0, time.Unix(0, began.Load()).Sub(r.Status().Witness.LastTick).Seconds(), 1e-3)
			require.Positive(t, r.Status().Pace.Share)
		}
	})
}

// Callers wait no longer than their context, and get the reason.
func TestWhoAsksIsToldWhyNothingCameOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
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
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
			t.Cleanup(cancel)
			return ctx
		}
		_, err := r.Janitor.Sweep(within(), Request{})
		require.ErrorIs(t, err, late, "the term does not open")

		asked := make(chan error)
		go func() { _, err := r.Janitor.Sweep(t.Context(), Request{}); asked <- err }()
		synctest.Wait()
		require.NoError(t, r.Resign(t.Context()))
		var not *NotLeaderError
		require.ErrorAs(t, <-asked, &not, "the term is over before it is open")
		require.ErrorAs(t, r.Resign(t.Context()), &not)

		defer f.beat("r1")()
		pass(time.Minute)
		_, err = r.Janitor.Sweep(within(), Request{})
		require.ErrorIs(t, err, late, "the first pass is not over")
		go func() { _, err := r.Janitor.Sweep(t.Context(), Request{}); asked <- err }()
		synctest.Wait()
		require.ErrorIs(t, r.Resign(within()), late, "its work goes on")
		close(done)
		if err := <-asked; err != nil { // otherwise it had its pass
			require.ErrorAs(t, err, &not, "the term is over")
		}
	})
}

func TestACallThatEndsWithItsCallerSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &scripted{}
		r := s.leader(f, nil)
		gone := errors.New("gone")
		var got error
		s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, gone)
			defer cancel()
			got = p.Call(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			return nil
		})
		require.ErrorIs(t, got, gone)
		begun := time.Now()
		s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
			got = p.Call(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			return nil
		})
		require.ErrorIs(t, got, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begun), "no call takes longer")
	})
}

func TestPagesAndBatchesGetSmallerWhereTheyTakeLong(t *testing.T) {
	batch := func(ctx context.Context, p *Pass, owner string) error {
		_, err := p.Delete(ctx, Batch{
			Owner: owner, Body: guard.EvictEntries, Keys: guard.EntryKeys(p.Layout(), owner), Items: []string{"x"},
		})
		return err
	}
	for name, c := range map[string]struct {
		do             func(ctx context.Context, p *Pass) error
		pages, batches bool // shrink
	}{
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
		"a batch": {func(ctx context.Context, p *Pass) error { return batch(ctx, p, "dead") }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				f.entries("dead", 1)
				s := &scripted{}
				r := s.leader(f, func(c *Config) {
					c.Client.AddHook(slowed("evalsha", time.Second))
				})
				before := *r.Status().Pace
				for range 4 { // a single slow one means nothing
					rep := s.pass(r, Request{}, c.do)
					require.Equal(t, Done, rep.Outcome, rep.Error)
				}
				after := *r.Status().Pace
				require.Equal(t, c.pages, after.PageSize < before.PageSize)
				require.Equal(t, c.batches, after.BatchSize < before.BatchSize)
			})
		})
	}
}

func TestABatchHasItemsAndNoMoreThanAreAllowed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 1)
		s := &scripted{}
		r := s.leader(f, func(c *Config) { c.DeleteBatch = 3 })
		for n, says := range []string{"batch of 0 items, want 1 to 3", "", "", "", "batch of 4 items, want 1 to 3"} {
			rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
				a, err := p.Delete(ctx, Batch{
					Owner: "dead", Body: guard.EvictEntries, Keys: guard.EntryKeys(f.Layout, "dead"),
					Items: strings.Split("a b c d", " ")[:n],
				})
				if err == nil && a.Verdict != guard.Done {
					err = errors.New(string(a.Verdict))
				}
				return err
			})
			want := 0
			if says == "" {
				want = n
			}
			require.Contains(t, rep.Error, says)
			require.Equal(t, says == "", rep.Outcome == Done)
			require.Equal(t, want, rep.Condemned)
		}
	})
}

// Of thousands of owners some heartbeats are unreadable, and the roster is read in pages.
func TestALargeRosterIsReadAsFarAsItCanBe(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		owners := make([]string, 1200)
		members := make([]any, len(owners))
		for i := range owners {
			owners[i] = fmt.Sprintf("o%d", i)
			members[i] = owners[i]
		}
		f.must(f.SAdd(t.Context(), f.Roster(), members...))
		var first sync.Once
		r := f.silentReplica("r1", func(c *Config) {
			c.ExistsConcurrency = 1
			c.Client.AddHook(before("pttl", func() (err error) {
				first.Do(func() { err = io.ErrUnexpectedEOF })
				return err
			}))
		})
		left, err := r.Heartbeats(t.Context(), owners)
		require.NoError(t, err)
		require.Len(t, left, 1184)
		require.Zero(t, left["o1199"])
	})
}

func TestHeartbeatsAreAskedForOnlyWhereRecordsSayTooLittleAndOnceAReading(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		defer f.beat("other")()
		f.entries("dead", 1)
		var asked atomic.Int64
		s := &scripted{}
		r := s.leader(f, nil)
		r.client.AddHook(counted("pttl", &asked))
		for range 2 {
			pass(2 * beatEvery)
			f.dies("dead") // a record that is spent is deleted
			pass(beatEvery / 2)
			asked.Store(0)
			var found []map[string]Liveness
			rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
				for _, owners := range [][]string{{"other", "dead"}, {"dead"}, {"other", "r1"}, nil} {
					some, err := p.Liveness(ctx, owners)
					if err != nil {
						return err
					}
					found = append(found, some)
				}
				return nil
			})
			require.Equal(t, Done, rep.Outcome, rep.Error)
			require.Equal(t, []map[string]Liveness{
				{"other": Alive, "dead": Dead}, {"dead": Dead}, {"other": Alive, "r1": Alive}, {},
			}, found)
			require.Equal(t, int64(1), asked.Load())
		}
	})
}

func TestAHeldBatchHasTheJanitorListenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 1)
		s := &scripted{}
		r := s.leader(f, nil)
		pass(time.Second)
		f.must(f.Del(t.Context(), f.Witness()))
		rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
			_, err := p.Delete(ctx, Batch{
				Owner: "dead", Body: guard.EvictEntries, Keys: guard.EntryKeys(f.Layout, "dead"), Items: []string{"x"},
			})
			return err
		})
		require.Equal(t, Held, rep.Outcome)
		synctest.Wait()
		require.Equal(t, time.Now(), r.Status().Witness.LastTick)
		require.Positive(t, r.Status().Witness.HeldFor)
	})
}

func TestAPauseOfAnotherTypeHoldsAndIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &scripted{}
		r := s.leader(f, nil)
		f.must(f.RPush(t.Context(), f.Paused(), "x"))
		rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error { return p.CheckHeld(ctx) })
		require.Equal(t, Held, rep.Outcome)
		require.Equal(t, "paused", rep.Reason)
		r.Poke()
		synctest.Wait()
		require.Contains(t, r.Status().Paused.Why, "WRONGTYPE")
	})
}

func TestATickAndWhatGoesAlongEndInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		reg := func(c *Config) {
			own, err := registry.New(registry.Config{
				Client: c.Client, Control: c.Control, Instance: "r1", Layout: f.Layout,
				HeartbeatInterval: 4 * time.Second, HeartbeatTTL: 12 * time.Second,
			})
			require.NoError(t, err)
			c.Registry = own
			c.Control.AddHook(slowed("evalsha", time.Hour))
		}
		r := f.silentReplica("r1", reg)
		gap := r.Timing().Gap()
		require.Less(t, gap, 10*time.Second)
		begun := time.Now()
		_, err := r.Tick(t.Context(), true)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gap/2, time.Since(begun), "so that another can come within the gap")
	})
}

func TestWhatFailedBeforeATermOpenedIsNoReasonToResign(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var line broken
		r := f.replica("r1", func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(redistest.Intercept(line.meets))
		})
		mend := line.by("pttl", io.ErrUnexpectedEOF)
		f.indexed("silent", 1)
		f.must(f.Set(t.Context(), f.Registry(), "not a hash", 0))
		defer r.start()()
		pass(2*time.Minute + 40*time.Second)
		require.True(t, r.Status().Leading)
		require.Empty(t, r.Status().Sweeps)
		mend()
		pass(2*time.Minute + 40*time.Second)
		require.Equal(t, Failed, r.report("registry").Outcome)
		require.Zero(t, r.value("janitor_lease_transitions_total", "event", "released"))
		pass(time.Minute)
		require.InDelta(t, 1, r.value("janitor_lease_transitions_total", "event", "released"), 0)
	})
}

func TestATermThatIsFencedEndsAtOnceWhateverItAskedFor(t *testing.T) {
	taken := func(t *testing.T, f *fleet) {
		f.must(f.Set(t.Context(), f.Lease(), "r2/1", time.Minute))
	}
	t.Run("before it has opened", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			r := f.silentReplica("r1", nil) // without a heartbeat it does not open, and retries
			defer r.start()()
			pass(time.Second)
			term := r.PresentTerm()
			taken(t, f)
			pass(time.Second) // the lease is renewed later
			require.ErrorIs(t, term.Cause(), ErrFenced)
			require.False(t, r.Status().Leading)
		})
	})
	t.Run("to forget an owner", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			defer f.beat("r1")()
			s := &scripted{}
			r := s.leader(f, nil)
			term := r.PresentTerm()
			pass(time.Second)
			taken(t, f)
			var got error
			s.do = func(ctx context.Context, p *Pass) error { got = p.Forget(ctx, "dead"); return got }
			_, err := r.Janitor.Sweep(t.Context(), Request{})
			if not := new(NotLeaderError); err != nil {
				require.ErrorAs(t, err, &not)
			}
			synctest.Wait()
			require.ErrorIs(t, got, ErrFenced)
			require.ErrorIs(t, term.Cause(), ErrFenced)
			require.Equal(t, Lost, r.report("scripted").Outcome)
		})
	})
}
