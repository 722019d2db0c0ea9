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
func inBubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		c := redis.NewClient(o)
		defer c.Close()
		f := &fleet{t: t, Client: c, Layout: guard.Layout{Prefix: "bubble:"}, options: o, leaseTTL: 15 * time.Second, bubble: true}
		f.listenedFor(time.Hour)
		test(t, f)
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
	inBubble(t, func(t *testing.T, f *fleet) {
		f.must(f.Del(t.Context(), f.Witness()))
		defer f.beat("other")()
		stopped := f.beat("dies")
		f.indexed("dies", 1000)
		f.entries("unknown", 10)
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
		defer r.start()()

		pass(grace - 10*time.Second)
		require.Equal(t, Held, r.report("registry").Outcome)
		require.Equal(t, "gap", r.report("registry").Reason)
		require.Zero(t, r.report("registry").Scanned, "what can lead nowhere is spared")
		require.Equal(t, 10, f.left("unknown"))
		require.Zero(t, r.value("janitor_held_total", "reason", "gap")-r.value("janitor_passes_total", "sweep", "registry", "outcome", "held"),
			"the quick way had nothing to sweep and so was not held")
		pass(12 * time.Second)
		require.Zero(t, f.left("unknown"), "the full scan goes on as soon as the grace period is over")

		stopped()
		dies, err := f.PTTL(t.Context(), f.Heartbeat("dies")).Result()
		require.NoError(t, err)
		pass(dies - time.Millisecond)
		require.Equal(t, 1000, f.left("dies"))
		pass(100 * time.Millisecond)
		require.Zero(t, f.left("dies"), "the look before saw when it would end")
		require.Equal(t, 1010, f.recorded())
		require.Equal(t, 1000, r.counted("dies"))
		require.Equal(t, Done, r.report("owners").Outcome)
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
	inBubble(t, func(t *testing.T, f *fleet) {
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
		require.InDelta(t, 30, readings.Load(), 2)
		require.Zero(t, asked.Load(), "the records say enough")

		stops["goes"]()
		f.must(f.Del(t.Context(), f.Heartbeat("goes")))
		f.record("goes", doubt.Bye, 0, beatTTL)
		f.announce("goes")
		pass(RosterFresh + 100*time.Millisecond)
		require.Zero(t, f.left("goes"), "a goodbye")
		require.Equal(t, 20, f.left("stays")+f.left("stays too"))

		pass(beatEvery)
		f.indexed("stopped", 10)
		pass(RosterFresh + 100*time.Millisecond)
		require.Zero(t, f.left("stopped"), "a longer roster")

		stops["dies"]()
		left, err := f.PTTL(t.Context(), f.Heartbeat("dies")).Result()
		require.NoError(t, err)
		pass(left - time.Millisecond)
		require.Equal(t, 10, f.left("dies"))
		pass(100 * time.Millisecond)
		require.Zero(t, f.left("dies"), "at the fall that the reading before foresaw")
	})
}

func TestFollowersListenWhileNobodyLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.must(f.Del(t.Context(), f.Witness()))
		f.must(f.Set(t.Context(), f.Lease(), "somebody/else", 0))
		stopLease := make(chan struct{})
		defer close(stopLease)
		go func() { // a live lease whose holder does nothing
			for {
				select {
				case <-stopLease:
					return
				case <-time.After(500 * time.Millisecond):
					_ = f.Set(context.Background(), f.Lease(), "somebody/else", 3*time.Second).Err()
				}
			}
		}()
		one, two := f.replica("r1", nil), f.replica("r2", nil)
		defer one.start()()
		defer two.start()()
		pass(20 * time.Minute)
		require.False(t, one.Status().Leading || two.Status().Leading)
		require.Equal(t, "somebody", one.Status().Leader)
		w := one.Status().Witness
		require.InDelta(t, 1200, w.Listening, 30)
		require.InDelta(t, 1200, one.value("janitor_witness_seconds"), 30)
		require.Zero(t, w.HeldFor)
		require.Equal(t, []string{"refused", "redis_evicting", "restarted"}, w.ChecksOff)
	})
}

func TestALeaderWhoseHeartbeatStaysAwayResigns(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.silentReplica("r1", nil)
		other := f.silentReplica("r2", nil)
		defer f.beat("r2")()
		defer r.start()()
		pass(10 * time.Second)
		require.True(t, r.Status().Leading)
		defer other.start()()
		pass(grace/2 - 10*time.Second)
		require.True(t, r.Status().Leading, "a lost heartbeat is back within an interval")
		pass(20 * time.Second)
		require.False(t, r.Status().Leading)
		require.True(t, other.Status().Leading)
		pass(5 * time.Minute)
		require.True(t, other.Status().Leading, "it sees its own")
	})
}

func TestALeaderThatHasJustStartedWaitsForItsFirstHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 5)
		r := f.silentReplica("r1", nil)
		defer r.start()()
		pass(5 * time.Second)
		require.True(t, r.Status().Leading)
		require.Equal(t, 5, f.left("dead"))
		f.live("r1")
		pass(10 * time.Second)
		require.Zero(t, f.left("dead"), "no hold was raised that would hold the whole fleet")
	})
}

func TestALeaderWhoseFullScanFailsForThreeIntervalsResigns(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute; c.LeaseTTL = time.Minute })
		f.must(f.Set(t.Context(), f.Registry(), "not a hash", 0))
		defer r.start()()
		pass(2*time.Minute + 50*time.Second)
		require.True(t, r.Status().Leading)
		require.Equal(t, Failed, r.report("registry").Outcome)
		pass(20 * time.Second)
		require.False(t, r.Status().Leading)
		require.Empty(t, f.Get(t.Context(), f.Lease()).Val(), "released, and left to others for a lease TTL")
		pass(90 * time.Second)
		require.True(t, r.Status().Leading, "there was nobody else")
		f.must(f.Del(t.Context(), f.Registry()))
		pass(5 * time.Minute)
		require.Equal(t, Done, r.report("registry").Outcome)
		require.InDelta(t, 1, r.value("janitor_lease_transitions_total", "event", "released"), 0)
	})
}

// Such passes fail before they know that a full scan is due.
func TestALeaderWhoseFullScanCannotEvenBeginForThreeIntervalsResigns(t *testing.T) {
	for command, what := range map[string]string{"exists": "the pause cannot be read", "hlen": "nothing can be counted"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.replica("r1", func(c *Config) {
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
				defer r.start()()
				pass(2*time.Minute + 50*time.Second)
				require.True(t, r.Status().Leading)
				require.Equal(t, Failed, r.report("registry").Outcome)
				require.Equal(t, Done, r.report("owners").Outcome)
				pass(20 * time.Second)
				require.False(t, r.Status().Leading)
			})
		})
	}
}

// Requests that are abandoned, or for a part only, do not keep a failing leader in office.
func TestPassesThatAreBrokenOffOrOfAPartAreNoProgress(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, r *replica){
		"broken off": func(t *testing.T, r *replica) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = r.Sweep(ctx, Request{})
		},
		"of one owner": func(t *testing.T, r *replica) { _, _ = r.Sweep(t.Context(), Request{Owner: "dead"}) },
		"a dry run":    func(t *testing.T, r *replica) { _, _ = r.Sweep(t.Context(), Request{DryRun: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
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
					ask(t, r)
				}
				require.Fail(t, "it leads, and no pass ends well")
			})
		})
	}
}

func TestALongFullScanThatFailsOnceIsNoReasonToResign(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var scans atomic.Int64
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
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
		require.True(t, r.Status().Leading)
		require.Greater(t, scans.Load(), int64(1))
		require.Zero(t, r.value("janitor_lease_transitions_total", "event", "released"))
	})
}

func TestFailuresInARowComeLaterEachTime(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var passes atomic.Int64
		r := f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "broken", every: 10 * time.Millisecond, pass: func(context.Context, *Pass) error {
				passes.Add(1)
				return errors.New("broken")
			}}}
		})
		defer r.start()()
		pass(10 * time.Minute)
		require.InDelta(t, 600/RetryMost.Seconds(), passes.Load(), 10)
	})
}

func TestAPauseTakesHoldInTheMiddleOfAPass(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 100)
		r := f.replica("r1", func(c *Config) { c.DeleteBatch = 1 })
		var batches atomic.Int64
		r.faults.set(func([]any) error {
			if batches.Add(1) == 10 {
				require.NoError(t, r.Pause(context.Background(), Pause{Who: "test"}))
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}, nil)
		defer r.start()()
		pass(time.Minute)
		require.Equal(t, Held, r.report("registry").Outcome)
		require.InDelta(t, 20, f.recorded(), 10)
		require.NoError(t, r.Resume(t.Context()))
	})
}

func TestANewLeaderKnowsFromFollowingWhatASmallCallUsuallyTakes(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
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
		require.False(t, r.Status().Leading)

		slow.Store(true)
		leads()
		pass(time.Minute)
		require.True(t, r.Status().Leading)
		require.Equal(t, "latency", r.Status().Pace.Throttled)
	})
}
