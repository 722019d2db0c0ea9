package janitor_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// inBubble runs a test with a virtual clock, on a fleet that was observed for an hour.
func inBubble(t *testing.T, test func(f *fleet)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		c := redis.NewClient(o)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		f := &fleet{T: t, Client: c, Layout: guard.Layout{Prefix: "bubble:"}, options: o, leaseTTL: 15 * time.Second, bubble: true}
		f.listenedFor(time.Hour)
		test(f)
	})
}

// beat keeps an instance alive until stop is called.
func (f *fleet) beat(id string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	f.beats(id, beatTTL)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait.For(ctx, beatEvery) {
			f.beatsOn(id, beatTTL)
		}
	}()
	return func() { cancel(); <-ended }
}

// pass lets time pass, with all its effects.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTheDeadAreSweptAtTheEndOfTheirHeartbeat(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.do("DEL", f.Witness())
		defer f.beat("other")()
		stopped := f.beat("dies")
		f.indexed("dies", 1000)
		f.entries("unknown", 10)
		r := f.starts(minutely)

		pass(grace - 10*time.Second)
		require.Equal(f, Held, r.report("registry").Outcome)
		require.Equal(f, "gap", r.report("registry").Reason)
		require.Zero(f, r.report("registry").Scanned, "what can lead nowhere is spared")
		f.has(10, "unknown")
		require.Zero(f, r.value("janitor_held_total", "reason", "gap")-r.value("janitor_passes_total", "sweep", "registry", "outcome", "held"),
			"the quick way had nothing to sweep and so was not held")
		pass(12 * time.Second)
		require.Zero(f, f.left("unknown"), "the full scan goes on as soon as the grace period is over")

		stopped()
		dies, err := f.PTTL(f.Context(), f.Heartbeat("dies")).Result()
		require.NoError(f, err)
		pass(dies - time.Millisecond)
		f.has(1000, "dies")
		pass(100 * time.Millisecond)
		require.Zero(f, f.left("dies"), "the look before saw when it would end")
		require.Equal(f, 1010, f.recorded())
		require.Equal(f, 1000, r.counted("dies"))
		require.Equal(f, Done, r.report("owners").Outcome)
	})
}

// looks counts the leader's readings, and the heartbeats that it asks for.
func (r *replica) looks() (readings, asked *atomic.Int64) {
	readings, asked = &atomic.Int64{}, &atomic.Int64{}
	r.client.AddHook(counted("evalsha", readings))
	r.client.AddHook(counted("pttl", asked))
	return readings, asked
}

func TestWhileAllLiveTheLeaderLooksThriceAnIntervalAndMissesNobody(t *testing.T) {
	inBubble(t, func(f *fleet) {
		stops := map[string]func(){}
		for _, id := range []string{"goes", "stays", "stays too", "dies"} {
			stops[id] = sync.OnceFunc(f.beat(id))
			defer stops[id]()
			f.indexed(id, 10)
		}
		r := f.replica("r1", func(c *Config) { c.Interval = time.Hour })
		readings, asked := r.looks()
		defer r.start()()
		pass(time.Minute)
		readings.Store(0)
		asked.Store(0)
		pass(10 * beatEvery)
		require.InDelta(f, 30, readings.Load(), 2)
		require.Zero(f, asked.Load(), "the records say enough")

		stops["goes"]()
		f.do("DEL", f.Heartbeat("goes"))
		f.record("goes", doubt.Bye, 0, beatTTL)
		f.announce("goes")
		pass(RosterFresh + 100*time.Millisecond)
		require.Zero(f, f.left("goes"), "a goodbye")
		f.has(20, "stays", "stays too")

		pass(beatEvery)
		f.indexed("stopped", 10)
		pass(RosterFresh + 100*time.Millisecond)
		require.Zero(f, f.left("stopped"), "a longer roster")

		stops["dies"]()
		left, err := f.PTTL(f.Context(), f.Heartbeat("dies")).Result()
		require.NoError(f, err)
		pass(left - time.Millisecond)
		f.has(10, "dies")
		pass(100 * time.Millisecond)
		require.Zero(f, f.left("dies"), "at the fall that the reading before foresaw")
	})
}

func TestALeaderWhoseHeartbeatStaysAwayResigns(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.silentReplica("r1", nil)
		other := f.silentReplica("r2", nil)
		defer f.beat("r2")()
		defer r.start()()
		pass(10 * time.Second)
		require.True(f, r.Status().Leading)
		defer other.start()()
		pass(grace/2 - 10*time.Second)
		require.True(f, r.Status().Leading, "a lost heartbeat is back within an interval")
		pass(20 * time.Second)
		require.False(f, r.Status().Leading)
		require.True(f, other.Status().Leading)
		pass(5 * time.Minute)
		require.True(f, other.Status().Leading, "it sees its own")
	})
}

func TestALeaderThatHasJustStartedWaitsForItsFirstHeartbeat(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.entries("dead", 5)
		r := f.silentReplica("r1", nil)
		defer r.start()()
		pass(5 * time.Second)
		require.True(f, r.Status().Leading)
		f.has(5, "dead")
		f.live("r1")
		pass(10 * time.Second)
		require.Zero(f, f.left("dead"), "no hold was raised that would hold the whole fleet")
	})
}

func TestALeaderWhoseFullScanFailsForThreeIntervalsResigns(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute; c.LeaseTTL = time.Minute })
		f.do("SET", f.Registry(), "not a hash")
		defer r.start()()
		pass(2*time.Minute + 50*time.Second)
		require.True(f, r.Status().Leading)
		require.Equal(f, Failed, r.report("registry").Outcome)
		pass(20 * time.Second)
		require.False(f, r.Status().Leading)
		require.Empty(f, f.Get(f.Context(), f.Lease()).Val(), "released, and left to others for a lease TTL")
		pass(90 * time.Second)
		require.True(f, r.Status().Leading, "there was nobody else")
		f.do("DEL", f.Registry())
		pass(5 * time.Minute)
		require.Equal(f, Done, r.report("registry").Outcome)
		r.counts(1, "janitor_lease_transitions_total", "event", "released")
	})
}

// Such passes fail before they know that a full scan is due.
func TestALeaderWhoseFullScanCannotEvenBeginForThreeIntervalsResigns(t *testing.T) {
	rows(t, inBubble, map[string]string{"the pause cannot be read": "exists", "nothing can be counted": "hlen"},
		func(f *fleet, command string) {
			r := f.starts(func(c *Config) {
				c.Interval, c.LeaseTTL = time.Minute, time.Minute
				fails := redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
					if len(cmds) > 1 && named(cmds, command) {
						return redistest.Fail(cmds, io.ErrUnexpectedEOF)
					}
					return send()
				})
				c.Client.AddHook(fails)
				c.Control.AddHook(fails)
			})
			pass(2*time.Minute + 50*time.Second)
			require.True(f, r.Status().Leading)
			require.Equal(f, Failed, r.report("registry").Outcome)
			require.Equal(f, Done, r.report("owners").Outcome)
			pass(20 * time.Second)
			require.False(f, r.Status().Leading)
		})
}

// Requests that are abandoned, or for a part only, do not keep a failing leader in office.
func TestPassesThatAreBrokenOffOrOfAPartAreNoProgress(t *testing.T) {
	rows(t, inBubble, map[string]func(r *replica){
		"broken off": func(r *replica) {
			ctx, cancel := context.WithTimeout(r.f.Context(), time.Second)
			defer cancel()
			_, _ = r.Sweep(ctx, Request{})
		},
		"of one owner": func(r *replica) { _, _ = r.Sweep(r.f.Context(), Request{Owner: "dead"}) },
		"a dry run":    func(r *replica) { _, _ = r.Sweep(r.f.Context(), Request{DryRun: true}) },
	}, func(f *fleet, ask func(r *replica)) {
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute; c.LeaseTTL = time.Minute })
		r.SweepsAre(fakeScan{fakeSweep{name: "registry", every: time.Minute, pass: func(ctx context.Context, p *Pass) error {
			p.BeginFullScan("test")
			switch {
			case p.Owner() != "" || p.DryRun():
				return nil
			case p.Requested():
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errors.New("broken")
		}}})
		defer r.start()()
		for range 8 {
			pass(30 * time.Second)
			if !r.Status().Leading {
				return
			}
			ask(r)
		}
		require.Fail(f, "it leads, and no pass ends well")
	})
}

func TestALongFullScanThatFailsOnceIsNoReasonToResign(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var scans atomic.Int64
		r := f.replica("r1", minutely)
		r.SweepsAre(fakeScan{fakeSweep{name: "registry", every: time.Minute, pass: func(ctx context.Context, p *Pass) error {
			p.BeginFullScan("test")
			if scans.Add(1) > 1 {
				return nil
			}
			wait.For(ctx, 10*time.Minute)
			return errors.New("at its very end")
		}}})
		defer r.start()()
		pass(20 * time.Minute)
		require.True(f, r.Status().Leading)
		require.Greater(f, scans.Load(), int64(1))
		r.counts(0, "janitor_lease_transitions_total", "event", "released")
	})
}

func TestFailuresInARowComeLaterEachTime(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var passes atomic.Int64
		f.starts(func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "broken", every: 10 * time.Millisecond, pass: func(context.Context, *Pass) error {
				passes.Add(1)
				return errors.New("broken")
			}}}
		})
		pass(10 * time.Minute)
		require.InDelta(f, 600/RetryMost.Seconds(), passes.Load(), 10)
	})
}

func TestAPauseTakesHoldInTheMiddleOfAPass(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.entries("dead", 100)
		r := f.replica("r1", func(c *Config) { c.DeleteBatch = 1 })
		var batches atomic.Int64
		r.faults.set(func([]any) error {
			if batches.Add(1) == 10 {
				require.NoError(f, r.Pause(context.Background(), Pause{Who: "test"}))
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}, nil)
		defer r.start()()
		pass(time.Minute)
		require.Equal(f, Held, r.report("registry").Outcome)
		require.InDelta(f, 20, f.recorded(), 10)
		require.NoError(f, r.Resume(f.Context()))
	})
}

func TestANewLeaderKnowsFromFollowingWhatASmallCallUsuallyTakes(t *testing.T) {
	inBubble(t, func(f *fleet) {
		leads := f.replica("r1", nil).start()
		pass(time.Second)
		var slow atomic.Bool
		r := f.replica("r2", func(c *Config) {
			c.RedisShare = 0.5
			c.Control.AddHook(redistest.Intercept(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if slow.Load() {
					time.Sleep(20 * time.Millisecond)
				}
				return send()
			}))
		})
		defer r.start()()
		pass(30 * time.Minute)
		require.False(f, r.Status().Leading)

		slow.Store(true)
		leads()
		pass(time.Minute)
		require.True(f, r.Status().Leading)
		require.Equal(f, "latency", r.Status().Pace.Throttled)
	})
}
