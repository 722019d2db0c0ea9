package registry_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAnEntryIsThereWhileItsClaimIsAndItsOwnerBeats(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
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
		require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val(), "goodbye leaves nothing behind")
	})
}

func TestTheNewestClaimWinsAndALateCloseUndoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		var superseded []*registry.Claim
		r1 := w.start("r1", func(c *registry.Config) {
			c.OnSuperseded = func(older *registry.Claim) { superseded = append(superseded, older) }
		})
		r2 := w.start("r2")
		old := r1.register(t, "imei")
		require.Empty(t, superseded)
		newer := r1.Register("imei")
		require.Equal(t, []*registry.Claim{old}, superseded, "before Register returns")
		require.NoError(t, newer.Wait(t.Context()))
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
		require.Equal(t, []string{w.Beats()}, w.Keys(t.Context(), "*").Val())
	})
}

// tellAgain is when OnDisplaced is called again for a move without a reaction.
const tellAgain = 5 * time.Minute

// moves records calls of Config.OnDisplaced.
type moves struct {
	mu   sync.Mutex
	told []string
}

func (m *moves) tell(c *registry.Config) {
	c.OnDisplaced = func(imei, owner string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, imei+" is at "+owner)
	}
}

// since returns the calls since the last since.
func (m *moves) since() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

func TestTheFormerOwnerIsToldOfAMove(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told moves
		r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
		stale := r1.register(t, "moves")
		r1.register(t, "stays")
		moved := r2.register(t, "moves")
		synctest.Wait()
		require.Equal(t, []string{"moves is at r2"}, told.since(), "at once")
		time.Sleep(tellAgain - time.Second)
		require.Empty(t, told.since(), "and not again so soon")

		// it is here after all: after seeing the other claim it acknowledges a frame, and sends
		// another
		stale.FrameReceived()
		stale.FrameAcked()
		time.Sleep(2 * time.Second)
		stale.FrameReceived()
		time.Sleep(2 * time.Second)
		require.Equal(t, "r1", w.owner("moves"))
		require.Equal(t, []string{"moves is at r1"}, told.since())
		moved.Release()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("moves"))
	})
}

func TestAMoveThatNobodyTellsOfIsFoundByALook(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told moves
		r1 := w.start("r1", told.tell)
		r1.register(t, "moves")
		r1.register(t, "moves to the dead")
		// older writers
		require.NoError(t, w.HSet(t.Context(), w.Registry(), "moves", "r2", "moves to the dead", "r3").Err())
		require.NoError(t, w.Set(t.Context(), w.Heartbeat("r2"), "lives", 0).Err())
		time.Sleep(11*registry.DefaultHeartbeatInterval + registry.DefaultHeartbeatInterval/10)
		require.Equal(t, []string{"moves is at r2"}, told.since(), "and what names the dead will be swept")
		time.Sleep(tellAgain - registry.DefaultHeartbeatInterval)
		require.Empty(t, told.since())
		time.Sleep(2 * registry.DefaultHeartbeatInterval)
		require.Equal(t, []string{"moves is at r2"}, told.since(), "it still is so")
	})
}

func TestTheNewestBootOfAnIdWins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		older := w.start("r1")
		c := older.register(t, "imei")
		time.Sleep(time.Second)
		newer := w.start("r1")
		require.Empty(t, w.owner("imei"), "what the former life left is handed back")
		newer.register(t, "other")
		require.ErrorIs(t, older.wait(), registry.ErrSuperseded)
		require.True(t, older.Status().Draining, "no socket may be sent to it")
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
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				change := func(c *registry.Config) { c.NoReverseIndex = without }
				former := w.start("r1", change)
				former.registerMany(t, 1100)
				w.kill(former)
				w.HSet(ctx, w.Registry(), "imei-5", "r2")
				w.SRem(ctx, w.Devices("r1"), "imei-6") // which is in no index
				require.Len(t, w.HGetAll(ctx, w.Registry()).Val(), 1100)

				r := w.start("r1", change)
				<-r.Started()
				require.Equal(t, map[string]string{"imei-5": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
				r.register(t, "imei-1")
				time.Sleep(2 * r.Timing().Interval)
				require.Equal(t, "r1", w.owner("imei-1"))
				w.end(r)
			})
		})
	}
}

func TestAHandBackThatRedisInterruptsDoesNotKeepTheListenersShut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		w.HSet(ctx, w.Registry(), "left", "r1")
		away := &faults{}
		away.set(func(cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				return errLost
			}
			return nil
		}, nil)
		r := w.start("r1", func(c *registry.Config) { c.Client.(*redis.Client).AddHook(away) })
		time.Sleep(10 * time.Second)
		select {
		case <-r.Started():
		default:
			require.Fail(t, "not started")
		}
		require.Equal(t, "r1", w.owner("left"))
		away.set(nil, nil)
		time.Sleep(10 * time.Second)
		require.Empty(t, w.owner("left"))
		require.Empty(t, r.Status().Failing)
		w.end(r)
	})
}

func TestWithoutRedisItStartsAndHandsBackLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
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
		r.Register("kept")
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
	inBubble(t, func(t *testing.T, w *bubble) {
		ctx := t.Context()
		future := fmt.Sprintf("%016d%s", time.Now().Add(time.Hour).UnixMicro(), "0000000000")
		w.Set(ctx, w.Heartbeat("r1"), "1/"+future, time.Minute)
		r := w.start("r1")
		r.register(t, "imei")
		require.Greater(t, r.Status().Boot, future)
		require.Len(t, r.Status().Boot, 26)

		rolledBack := strings.Repeat("0", 26) // after a failover
		w.Set(ctx, w.Heartbeat("r1"), "1/"+rolledBack, time.Minute)
		time.Sleep(r.Timing().Interval + time.Second)
		synctest.Wait()
		require.Contains(t, w.Get(ctx, w.Heartbeat("r1")).Val(), r.Status().Boot)
		w.end(r)
	})
}

func TestTheNewestBootWinsThoughTheClockWentBackAndTheOldestWasSilentForATTL(t *testing.T) {
	ends := map[string]func(w *bubble){
		"its heartbeat expires": func(*bubble) {},
		"its heartbeat is deleted": func(w *bubble) {
			require.NoError(w.t, w.Del(w.t.Context(), w.Heartbeat("r1")).Err())
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *bubble) {
				future := fmt.Sprintf("%016d%010d", time.Now().Add(time.Hour).UnixMicro(), 1)
				w.Set(t.Context(), w.Heartbeat("r1"), "1/"+future, time.Minute)
				older := w.start("r1")
				older.register(t, "imei")
				older.data.set(always, nil)
				older.control.set(always, nil)
				end(w)
				time.Sleep(older.Timing().TTL + time.Second)

				newer := w.start("r1")
				newer.register(t, "imei")
				older.data.set(nil, nil)
				older.control.set(nil, nil)
				require.ErrorIs(t, older.wait(), registry.ErrSuperseded)
				require.Greater(t, newer.Status().Boot, older.Status().Boot)
				require.Equal(t, "r1", w.owner("imei"))
				w.end(newer)
			})
		})
	}
}

func TestABootWhoseReplyIsLostIsTheSameBoot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		lost := &faults{}
		lost.set(nil, always)
		r := w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(lost) })
		_, token, _ := strings.Cut(w.Get(t.Context(), w.Heartbeat("r1")).Val(), "/")
		require.NotEmpty(t, token)
		lost.set(nil, nil)
		time.Sleep(r.Timing().Interval)
		synctest.Wait()
		require.Equal(t, token, r.Status().Boot)
		w.end(r)
	})
}

func TestDrainBeatsUntilClaimsAreReleasedAndGoodbyeSaysWhatIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
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
		require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val())

		r = w.start("r2")
		r.register(t, "imei")
		r.stop()
		require.NoError(t, r.wait(), "the drain time passes")
		require.Equal(t, "r2", w.owner("imei"))
		require.Zero(t, w.Exists(ctx, w.Heartbeat("r2")).Val(), "so that the leader sweeps the rest at once")
		require.True(t, w.SIsMember(ctx, w.Roster(), "r2").Val())
		require.Equal(t, doubt.Bye, doubt.Parse(w.HGet(ctx, w.Beats(), "r2").Val()).State, "this was no silent death")
	})
}

func TestTheHeartbeatOutlastsWhoeverStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1", func(c *registry.Config) { c.Drain = time.Hour })
		leave := r.HoldHeartbeat()
		r.stop()
		time.Sleep(10 * time.Minute)
		require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val())
		leave()
		leave()
		require.NoError(t, r.wait())
		require.Equal(t, []string{w.Beats()}, w.Keys(t.Context(), "*").Val())
	})
}

func TestAFailedBeatIsTriedAgainSoonAndNeverFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.register(t, "imei")
		r.control.set(always, nil)
		time.Sleep(r.Timing().Interval + 20*time.Second)
		r.control.set(nil, nil)
		time.Sleep(r.Timing().Interval / 9)
		synctest.Wait()
		require.Greater(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), 80*time.Second)
		require.GreaterOrEqual(t, r.failures("heartbeat"), 5.0)
		w.end(r)
	})
}

func TestRegistriesOfAnyIntervalsShareAControlClient(t *testing.T) {
	second, hour := time.Second, time.Hour
	for _, intervals := range [][2]time.Duration{
		{201 * second, 70 * second}, {8 * hour, hour}, {8 * hour, 8 * hour}, {30 * second, 31 * second}, {second, 3 * second},
	} {
		t.Run(fmt.Sprint(intervals), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				control := redis.NewClient(lease.Options(w.options))
				t.Cleanup(func() { require.NoError(t, control.Close()) })
				for i, interval := range intervals {
					r := w.start(fmt.Sprint("r", i), func(c *registry.Config) {
						require.NoError(t, c.Control.Close())
						c.Control, c.HeartbeatInterval, c.HeartbeatTTL = control, interval, 3*interval
					})
					defer func() {
						require.Zero(t, r.failures("heartbeat"))
						require.Less(t, time.Since(r.Status().LastBeat), interval+interval/10)
						w.end(r)
					}()
				}
				time.Sleep(3 * slices.Max(intervals[:]))
				synctest.Wait()
			})
		})
	}
}

func TestThoseThatBeatSeldomKeepNoOtherOfTheirControlClientFromBeating(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		o := lease.Options(w.options)
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 40*time.Millisecond, 40*time.Millisecond,
			40*time.Millisecond, 40*time.Millisecond
		control := redis.NewClient(o)
		t.Cleanup(func() { require.NoError(t, control.Close()) })
		for id, interval := range map[string]time.Duration{
			"seldom": 30050 * time.Millisecond, "seldom-too": 31 * time.Second, "often": 100 * time.Millisecond,
		} {
			r := w.start(id, func(c *registry.Config) {
				require.NoError(t, c.Control.Close())
				c.Control, c.HeartbeatInterval, c.HeartbeatTTL = control, interval, 3*interval
			})
			defer w.end(r)
		}
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			require.EqualValues(t, 1, w.Exists(t.Context(), w.Heartbeat("often")).Val())
		}
	})
}

func TestLookupTellsOwnerAndWhetherItLives(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx := t.Context()
		reg := prometheus.NewRegistry()
		control := redis.NewClient(lease.Options(w.Options))
		defer func() { require.NoError(t, control.Close()) }()
		r, err := registry.New(registry.Config{
			Client: w.Client, Control: control, Layout: registry.Layout{Prefix: w.Prefix}, Registerer: reg, Namespace: "fleet",
		})
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
		require.Equal(t, 5, testutil.CollectAndCount(reg, "fleet_registry_failures_total"))
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
	_, err = registry.New(registry.Config{Client: safe, Control: safe, HeartbeatInterval: math.MaxInt64, HeartbeatTTL: math.MaxInt64})
	require.ErrorContains(t, err, "must be at least three times")
	require.ErrorContains(t, err, "must be at most 24h0m0s")
	_, err = registry.New(registry.Config{Client: safe, Control: unsafe})
	require.ErrorIs(t, err, lease.ErrUnsafeClient)
	_, err = registry.New(registry.Config{})
	require.ErrorContains(t, err, "unfit Client: lease: unsafe client: there is none")

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	byLatency := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, RouteByLatency: true})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	endless := *o
	endless.MaxRetries, endless.ContextTimeoutEnabled, endless.ReadTimeout = -1, true, -1
	noDeadline := redis.NewClient(&endless)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(cluster.Close(), byLatency.Close(), ring.Close(), noDeadline.Close()))
	})
	for _, c := range []struct {
		client redis.UniversalClient
		says   []string
	}{
		{cluster, []string{"MaxRedirects is 3, must be -1", "Layout.Prefix \"\" has no hash tag"}},
		{byLatency, []string{"RouteByLatency is true, must be false"}},
		{ring, []string{"a ring spreads keys"}},
		{struct{ redis.UniversalClient }{safe}, []string{"cannot be checked, hand in a *redis.Client"}},
		{unsafe, []string{"MaxRetries is 3, must be -1 (none)", "ContextTimeoutEnabled is false, must be true"}},
		{noDeadline, []string{"ReadTimeout is off, must be set"}},
	} {
		_, err := registry.New(registry.Config{Client: c.client, Control: safe})
		require.ErrorIs(t, err, lease.ErrUnsafeClient)
		require.ErrorContains(t, err, "unfit Client")
		for _, says := range c.says {
			require.ErrorContains(t, err, says)
		}
	}
}
