package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// faults is a hook that breaks calls. A lost reply is two faults: it happened, and it did not.
type faults struct {
	mu            sync.Mutex
	before, after func(redis.Cmder) error // nil: none
}

var errLost = errors.New("connection lost")

func (f *faults) set(before, after func(redis.Cmder) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f.mu.Lock()
		before, after := f.before, f.after
		f.mu.Unlock()
		if before != nil {
			if err := before(cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		err := next(ctx, cmd)
		if err == nil && after != nil && cmd.Name() != "hello" { // an error reply arrives, and so does a connection
			if lost := after(cmd); lost != nil {
				cmd.SetErr(lost)
				return lost
			}
		}
		return err
	}
}

func always(redis.Cmder) error { return errLost }

// replica is one running registry in a bubble, and the faults on its lines.
type replica struct {
	*registry.Registry
	data, control faults
	metrics       *prometheus.Registry
	stop          context.CancelFunc
	ended         chan error
}

// world is a bubble's server and a client beside the replicas.
type world struct {
	*redis.Client
	registry.Layout
	t       *testing.T
	options *redis.Options
}

// inBubble runs f against miniredis where time is the bubble's. Fault-free time costs nothing there.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		c := redis.NewClient(lease.Options(o))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		f(t, &world{Client: c, t: t, options: o})
	})
}

func (w *world) start(id string, change ...func(*registry.Config)) *replica {
	r := &replica{metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	data, control := redis.NewClient(lease.Options(w.options)), redis.NewClient(lease.Options(w.options))
	data.AddHook(&r.data)
	control.AddHook(&r.control)
	cfg := registry.Config{Client: data, Control: control, Instance: id, Registerer: r.metrics}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	r.Registry, err = registry.New(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		err := r.Run(ctx)
		_ = data.Close()
		_ = control.Close()
		r.ended <- err
	}()
	w.t.Cleanup(func() { cancel(); <-gone })
	synctest.Wait()
	return r
}

func (w *world) end(r *replica) {
	r.stop()
	require.NoError(w.t, r.wait())
}

var errGoesOn = errors.New("the replica goes on")

// wait returns what Run returned; an hour of the bubble is for ever.
func (r *replica) wait() error {
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Hour):
		return errGoesOn
	}
}

// kill ends a replica without goodbye: nothing it sends arrives any more.
func (w *world) kill(r *replica) {
	r.data.set(always, nil)
	r.control.set(always, nil)
	w.end(r)
}

func (w *world) owner(imei string) string {
	return w.HGet(context.Background(), w.Registry(), imei).Val()
}

func (r *replica) failures(op string) float64 {
	families, _ := r.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "teltonika_registry_failures_total" {
			for _, m := range f.Metric {
				if m.Label[0].GetValue() == op {
					return m.Counter.GetValue()
				}
			}
		}
	}
	return -1
}

func (r *replica) register(t *testing.T, imei string) *registry.Claim {
	c := r.Register(t.Context(), imei)
	require.NoError(t, c.Wait(t.Context()))
	return c
}

// registerMany registers imei-0 to imei-<n-1>, all at once.
func (r *replica) registerMany(t *testing.T, n int) []*registry.Claim {
	claims := make([]*registry.Claim, n)
	for i := range claims {
		claims[i] = r.Register(t.Context(), fmt.Sprintf("imei-%d", i))
	}
	for _, c := range claims {
		require.NoError(t, c.Wait(t.Context()))
	}
	return claims
}

// frame is one frame of the device, arrived and acknowledged, and what follows from it.
func frame(c *registry.Claim) {
	c.Arrived()
	synctest.Wait()
	c.Acknowledged()
	time.Sleep(2 * time.Second) // of the bubble
	synctest.Wait()
}

func TestAnEntryIsThereWhileItsClaimIsAndItsOwnerBeats(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1")
		c := r.register(t, "imei")
		require.Equal(t, "r1", w.owner("imei"))
		require.Equal(t, []string{"imei"}, w.SMembers(ctx, w.Devices("r1")).Val())
		require.Equal(t, []string{"r1"}, w.SMembers(ctx, w.Roster()).Val())

		beats := map[string]bool{}
		for range 100 {
			left := w.PTTL(ctx, w.Heartbeat("r1")).Val()
			require.Greater(t, left, 59*time.Second, "refreshed every 30 s")
			require.LessOrEqual(t, left, 90*time.Second)
			beats[w.Get(ctx, w.Heartbeat("r1")).Val()] = true
			time.Sleep(3 * time.Second)
		}
		require.InDelta(t, 10, len(beats), 1)

		c.Release()
		c.Release()
		synctest.Wait()
		require.Empty(t, w.owner("imei"))
		require.Zero(t, r.Status().Devices)
		w.end(r)
		require.Empty(t, w.Keys(ctx, "*").Val(), "goodbye leaves nothing behind")
	})
}

func TestTheNewestClaimWinsAndALateCloseUndoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r1, r2 := w.start("r1"), w.start("r2")
		old := r1.register(t, "imei")
		newer := r1.register(t, "imei")
		<-old.Superseded()
		old.Release()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.Equal(t, 1, r1.Status().Devices)

		moved := r2.register(t, "imei")
		newer.Release()
		synctest.Wait()
		require.Equal(t, "r2", w.owner("imei"), "the former owner's release is compared")
		require.Zero(t, w.SCard(t.Context(), w.Devices("r1")).Val())

		back := r1.register(t, "imei")
		moved.Release()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		back.Release()
		w.end(r1)
		w.end(r2)
		require.Empty(t, w.Keys(t.Context(), "*").Val())
	})
}

func TestWhatWasLostWholesaleIsBackWithinOneInterval(t *testing.T) {
	lose := map[string]func(ctx context.Context, w *world) error{
		"the heartbeat":             func(ctx context.Context, w *world) error { return w.Del(ctx, w.Heartbeat("r1"), w.Registry()).Err() },
		"everything":                func(ctx context.Context, w *world) error { return w.FlushAll(ctx).Err() },
		"the index":                 func(ctx context.Context, w *world) error { return w.Del(ctx, w.Devices("r1")).Err() },
		"entries, with the witness": func(ctx context.Context, w *world) error { return w.Del(ctx, w.Registry(), w.Witness()).Err() },
		"entries and index, partly": func(ctx context.Context, w *world) error {
			w.HDel(ctx, w.Registry(), "imei-7")
			return w.SRem(ctx, w.Devices("r1"), "imei-7").Err()
		},
		"the index of another boot ": func(ctx context.Context, w *world) error { return w.SAdd(ctx, w.Devices("r1"), "stray").Err() },
	}
	for name, lost := range lose {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				w.HSet(ctx, w.Witness(), "since", "1")
				r := w.start("r1")
				r.registerMany(t, 1200)
				require.NoError(t, lost(ctx, w))
				time.Sleep(r.Interval() + 4*time.Second)
				synctest.Wait()
				entries := w.HGetAll(ctx, w.Registry()).Val()
				if name != "entries and index, partly" { // a single entry: within ten intervals
					require.Len(t, entries, 1200)
				}
				for imei, owner := range entries {
					require.Equal(t, "r1", owner, imei)
				}
				require.EqualValues(t, 1200, w.SCard(ctx, w.Devices("r1")).Val())
				require.True(t, w.SIsMember(ctx, w.Roster(), "r1").Val())
				w.end(r)
			})
		})
	}
}

func TestASingleLostEntryIsBackAtTheNextFrameOrWithinTenIntervals(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1")
		talking := r.register(t, "talking")
		r.register(t, "parked")
		time.Sleep(2 * time.Second)
		w.HDel(ctx, w.Registry(), "talking", "parked")
		talking.Arrived()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("talking"))
		require.Empty(t, w.owner("parked"))
		time.Sleep(10*r.Interval() + time.Second)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("parked"))
		require.EqualValues(t, 2, r.Status().Healed)
		w.end(r)
	})
}

func TestAForeignEntryIsTakenBackOnlyOnFreshEvidence(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1")
		c := r.register(t, "imei")
		quiet := r.register(t, "quiet")
		w.HSet(ctx, w.Registry(), "imei", "r2", "quiet", "r2")

		time.Sleep(11 * r.Interval())
		require.Equal(t, "r2", w.owner("imei"), "no frame, no evidence")
		require.Equal(t, 2, r.Status().Foreign)

		quiet.Arrived() // its acknowledgement never leaves
		quiet.Arrived()
		synctest.Wait()
		require.Equal(t, "r2", w.owner("quiet"))

		c.Acknowledged() // of a frame that arrived before
		synctest.Wait()
		require.Equal(t, "r2", w.owner("imei"))
		c.Arrived() // the device has seen that acknowledgement: it is here
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.Equal(t, 1, r.Status().Foreign)

		w.HDel(ctx, w.Registry(), "quiet") // its owner gave it up
		time.Sleep(r.Interval() / 5)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("quiet"))
		w.end(r)
	})
}

func TestEvidenceAgainstOneInstanceDoesNotOverwriteAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1")
		c := r.register(t, "imei")
		w.HSet(ctx, w.Registry(), "imei", "r2")
		time.Sleep(2 * time.Second)
		frame(c) // sees r2, is acknowledged
		w.HSet(ctx, w.Registry(), "imei", "r3")
		c.Arrived()
		synctest.Wait()
		require.Equal(t, "r3", w.owner("imei"))
		c.Acknowledged()
		c.Arrived()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		w.end(r)
	})
}

func TestRedisAwayTheDeviceIsServedAndHealedLater(t *testing.T) {
	faultKinds := map[string]func(*faults){
		"the request is lost": func(f *faults) { f.set(always, nil) },
		"the reply is lost":   func(f *faults) { f.set(nil, always) },
	}
	for name, broken := range faultKinds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				r := w.start("r1")
				gone, moved := r.register(t, "gone"), r.register(t, "moved")
				broken(&r.data)
				broken(&r.control)
				c := r.Register(ctx, "new")
				short, cancel := context.WithTimeout(ctx, time.Second)
				require.ErrorIs(t, c.Wait(short), context.DeadlineExceeded)
				cancel()
				gone.Release()
				moved.Release()
				time.Sleep(5 * time.Minute)
				require.Positive(t, r.failures("register"))
				require.Positive(t, r.failures("heartbeat"))
				require.Positive(t, r.failures("release"))
				require.NotEmpty(t, r.Status().Failing)
				w.HSet(ctx, w.Registry(), "moved", "r2")

				r.data.set(nil, nil)
				r.control.set(nil, nil)
				require.NoError(t, c.Wait(ctx))
				time.Sleep(r.Interval())
				synctest.Wait()
				require.Equal(t, "r1", w.owner("new"))
				require.Empty(t, w.owner("gone"), "a release that Redis missed leaves nothing behind")
				require.Equal(t, "r2", w.owner("moved"))
				require.Empty(t, r.Status().Failing)
				c.Release()
				w.end(r)
			})
		})
	}
}

func TestARegistrationThatLandsAfterItsSocketClosedIsHandedBack(t *testing.T) {
	for name, index := range map[string]bool{"with the index": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = index })
				r.data.set(always, nil)
				c := r.Register(ctx, "imei")
				time.Sleep(100 * time.Millisecond)
				c.Release()
				r.data.set(nil, nil)
				time.Sleep(30 * time.Second) // the release has landed

				w.HSet(ctx, w.Registry(), "imei", "r1") // and now the registration does
				if !index {
					w.SAdd(ctx, w.Devices("r1"), "imei")
				}
				time.Sleep(r.Interval() + time.Second)
				synctest.Wait()
				require.Empty(t, w.owner("imei"))
				w.end(r)
				require.Empty(t, w.Keys(ctx, "*").Val())
			})
		})
	}
}

func TestARegistrationThatWaitedTooLongOverwritesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1")
		r.data.set(always, nil)
		c := r.Register(ctx, "imei")
		time.Sleep(10 * time.Second)
		w.HSet(ctx, w.Registry(), "imei", "r2") // meanwhile the device went elsewhere
		r.data.set(nil, nil)
		time.Sleep(10 * r.Interval())
		require.Equal(t, "r2", w.owner("imei"))
		c.Release()
		w.end(r)
		require.Equal(t, "r2", w.owner("imei"))
	})
}

func TestAStormSharesTransactions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.start("r1")
		calls := 0
		r.data.set(func(redis.Cmder) error { calls++; return nil }, nil)
		claims := r.registerMany(t, 5000)
		require.Less(t, calls, 60)
		for _, c := range claims {
			c.Release()
		}
		w.end(r)
		require.Empty(t, w.Keys(t.Context(), "*").Val())
	})
}

func TestTheNewestBootOfAnIdWins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		older := w.start("r1")
		c := older.register(t, "imei")
		time.Sleep(time.Second)
		newer := w.start("r1")
		require.Empty(t, w.owner("imei"), "what the former life left is handed back")
		newer.register(t, "other")
		require.ErrorIs(t, older.wait(), registry.ErrSuperseded)
		c.Release()
		older.stop()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("other"))
		require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), "it leaves the heartbeat alone")
		w.end(newer)
	})
}

func TestANewLifeHandsBackWhatTheFormerLeftBeforeItStarts(t *testing.T) {
	for name, without := range map[string]bool{"with the index": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				change := func(c *registry.Config) { c.NoReverseIndex = without }
				former := w.start("r1", change)
				former.registerMany(t, 1100)
				w.kill(former)
				w.HSet(ctx, w.Registry(), "imei-5", "r2")
				w.SRem(ctx, w.Devices("r1"), "imei-6") // what no index remembers
				require.Len(t, w.HGetAll(ctx, w.Registry()).Val(), 1100)

				r := w.start("r1", change)
				<-r.Started()
				require.Equal(t, map[string]string{"imei-5": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
				r.register(t, "imei-1")
				time.Sleep(2 * r.Interval())
				require.Equal(t, "r1", w.owner("imei-1"))
				w.end(r)
			})
		})
	}
}

func TestWithoutRedisItStartsAndHandsBackLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.HSet(ctx, w.Registry(), "left", "r1", "kept", "r1", "theirs", "r2")
		r := w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(&faults{}) })
		w.end(r)
		require.NotEqual(t, "r1", w.owner("left"))

		w.HSet(ctx, w.Registry(), "left", "r1", "kept", "r1")
		away := &faults{}
		away.set(always, nil)
		r = w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(away) })
		<-r.Started()
		require.True(t, r.Status().LastBeat.IsZero())
		r.Register(ctx, "kept")
		time.Sleep(time.Minute)
		require.Equal(t, "r1", w.owner("left"))
		away.set(nil, nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, map[string]string{"kept": "r1", "theirs": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
		w.end(r)
	})
}

func TestAHigherTokenIsDrawnThoughTheClockWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		future := fmt.Sprintf("%016d%s", time.Now().Add(time.Hour).UnixMicro(), "0000000000")
		w.Set(ctx, w.Heartbeat("r1"), "1/"+future, time.Minute)
		r := w.start("r1")
		r.register(t, "imei")
		require.Greater(t, r.Status().Boot, future)
		require.Len(t, r.Status().Boot, 26)

		rolledBack := strings.Repeat("0", 26) // by a failover
		w.Set(ctx, w.Heartbeat("r1"), "1/"+rolledBack, time.Minute)
		time.Sleep(r.Interval() + time.Second)
		synctest.Wait()
		require.Contains(t, w.Get(ctx, w.Heartbeat("r1")).Val(), r.Status().Boot)
		w.end(r)
	})
}

func TestABootWhoseReplyIsLostIsTheSameBoot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lost := &faults{}
		lost.set(nil, always)
		r := w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(lost) })
		_, token, _ := strings.Cut(w.Get(t.Context(), w.Heartbeat("r1")).Val(), "/")
		require.NotEmpty(t, token)
		lost.set(nil, nil)
		time.Sleep(r.Interval())
		synctest.Wait()
		require.Equal(t, token, r.Status().Boot)
		w.end(r)
	})
}

func TestDrainBeatsUntilClaimsAreReleasedAndGoodbyeSaysWhatIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := w.start("r1", func(c *registry.Config) { c.Drain = 5 * time.Minute })
		c := r.register(t, "imei")
		r.stop()
		time.Sleep(2 * time.Minute)
		require.Equal(t, "r1", w.owner("imei"))
		require.Positive(t, w.PTTL(ctx, w.Heartbeat("r1")).Val(), "draining it still beats")
		require.True(t, r.Status().Draining)
		c.Release()
		require.NoError(t, r.wait())
		require.Empty(t, w.Keys(ctx, "*").Val())

		r = w.start("r2")
		r.register(t, "imei")
		r.stop()
		require.NoError(t, r.wait(), "the drain time passes")
		require.Equal(t, "r2", w.owner("imei"))
		require.Zero(t, w.Exists(ctx, w.Heartbeat("r2")).Val(), "so that the leader sweeps the rest at once")
		require.True(t, w.SIsMember(ctx, w.Roster(), "r2").Val())
		require.True(t, w.HExists(ctx, w.Witness(), "bye:r2").Val(), "this was no silent death")
	})
}

func TestTheHeartbeatOutlastsWhoeverStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.start("r1", func(c *registry.Config) { c.Drain = time.Hour })
		leave := r.Stay()
		r.stop()
		time.Sleep(10 * time.Minute)
		require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val())
		leave()
		leave()
		require.NoError(t, r.wait())
		require.Empty(t, w.Keys(t.Context(), "*").Val())
	})
}

func TestAFailedBeatIsTriedAgainSoonAndNeverFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.start("r1")
		r.register(t, "imei")
		r.control.set(always, nil)
		time.Sleep(r.Interval() + 20*time.Second)
		r.control.set(nil, nil)
		time.Sleep(r.Interval() / 9)
		synctest.Wait()
		require.Greater(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), 80*time.Second)
		require.GreaterOrEqual(t, r.failures("heartbeat"), 5.0)
		w.end(r)
	})
}

func TestLookupTellsOwnerAndWhetherItLives(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx := t.Context()
		reg := prometheus.NewRegistry()
		control := redis.NewClient(lease.Options(w.Options))
		defer func() { require.NoError(t, control.Close()) }()
		r, err := registry.New(registry.Config{Client: w.Client, Control: control, Layout: registry.Layout{Prefix: w.Prefix}, Registerer: reg})
		require.NoError(t, err)
		_, err = r.Lookup(ctx, "imei")
		require.ErrorIs(t, err, registry.ErrNotRegistered)
		w.Client.HSet(ctx, r.Layout().Registry(), "imei", "r9")
		o, err := r.Lookup(ctx, "imei")
		require.NoError(t, err)
		require.Equal(t, registry.Owner{Instance: "r9"}, o)
		w.Client.Set(ctx, r.Layout().Heartbeat("r9"), "1", time.Minute)
		o, err = r.Lookup(ctx, "imei")
		require.NoError(t, err)
		require.Equal(t, registry.Owner{Instance: "r9", Live: true}, o)
		require.Equal(t, 5, testutil.CollectAndCount(reg, "teltonika_registry_failures_total"))
	})
}

func TestNewRefusesInWords(t *testing.T) {
	t.Parallel()
	o := &redis.Options{Addr: "127.0.0.1:1"}
	unsafe, safe := redis.NewClient(o), redis.NewClient(lease.Options(o))
	t.Cleanup(func() { require.NoError(t, errors.Join(unsafe.Close(), safe.Close())) })
	_, err := registry.New(registry.Config{Client: safe, Control: safe, HeartbeatTTL: time.Minute, Instance: "a b"})
	require.ErrorContains(t, err, "HeartbeatTTL is 1m0s, must be at least three times HeartbeatInterval (30s)")
	require.ErrorContains(t, err, `Instance "a b"`)
	_, err = registry.New(registry.Config{Client: safe, Control: unsafe})
	require.ErrorIs(t, err, lease.ErrUnsafeClient)
	_, err = registry.New(registry.Config{})
	require.ErrorContains(t, err, "a Client and a Control are required")
}
