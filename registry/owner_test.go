package registry_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
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
		require.Zero(t, r.Status().Held)
		w.end(r)
		require.Equal(t, []string{w.Beats()}, w.Keys(ctx, "*").Val(), "goodbye leaves nothing behind")
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
		require.ErrorIs(t, older.wait(), registry.ErrReplaced)
		require.True(t, older.Status().Draining, "no socket may be sent to it")
		require.ErrorIs(t, c.Err(), registry.ErrReplaced)
		c.Release()
		older.stop()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("other"))
		require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), "it leaves the heartbeat alone")
		w.end(newer)
	})
}

func TestANewLifeHandsBackWhatTheFormerLeftBeforeItStarts(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		ctx := t.Context()
		former := w.start("r1", index)
		former.registerMany(t, 1100)
		w.kill(former)
		w.HSet(ctx, w.Registry(), "imei-5", "r2")
		w.SRem(ctx, w.Devices("r1"), "imei-6") // which is in no index
		if former.Status().IndexKept {
			w.SAdd(ctx, w.Devices("r1"), "in the index only")
		}
		require.Len(t, w.HGetAll(ctx, w.Registry()).Val(), 1100)

		r := w.start("r1", index)
		<-r.Started()
		require.Equal(t, map[string]string{"imei-5": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
		require.Empty(t, w.SMembers(ctx, w.Devices("r1")).Val())
		require.Zero(t, r.Remembered())
		r.register(t, "imei-1")
		time.Sleep(2 * r.Timing().Interval)
		require.Equal(t, "r1", w.owner("imei-1"))
		w.end(r)
	})
}

func TestAHandBackThatRedisInterruptsIsMadeUpForAndKeepsNoListenerShut(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]struct {
		control bool
		breaks  func(redis.Cmder) error
		op      string
	}{
		"Redis is away":          {true, always, "heartbeat"},
		"nothing can be written": {false, failing("evalsha"), "heartbeat"},
		"no scan works":          {false, failing("hscan"), "compare"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				ctx := t.Context()
				w.HSet(ctx, w.Registry(), "left", "r1", "kept", "r1", "theirs", "r2")
				faulty := &faults{}
				faulty.set(away.breaks, nil)
				r := w.start("r1", func(c *registry.Config) {
					client := c.Client
					if away.control {
						client = c.Control
					}
					client.(*redis.Client).AddHook(redistest.Intercept(faulty.meets))
				})
				kept := r.Register("kept")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				<-r.Started()
				require.Contains(t, r.Status().Failing[away.op], errLost.Error())
				require.Equal(t, "r1", w.owner("left"))
				faulty.set(nil, nil)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, map[string]string{"kept": "r1", "theirs": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
				require.Empty(t, r.Status().Failing)
				kept.Release()
				w.end(r)
			})
		})
	}
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
		for range 5_000 {
			time.Sleep(20 * time.Millisecond)
			require.EqualValues(t, 1, w.Exists(t.Context(), w.Heartbeat("often")).Val())
		}
	})
}

func TestNewRefusesUnsafeClients(t *testing.T) {
	t.Parallel()
	o := &redis.Options{Addr: "127.0.0.1:1"}
	unsafe, safe := redis.NewClient(o), redis.NewClient(lease.Options(o))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { require.NoError(t, errors.Join(unsafe.Close(), safe.Close(), cluster.Close())) })
	for says, c := range map[string]registry.Config{
		"unfit Client: ":                   {Client: unsafe, Control: safe},
		"unfit Control: ":                  {Client: safe, Control: unsafe},
		`MaxRedirects is 3, must be -1`:    {Client: cluster, Control: safe},
		`Layout.Prefix "" has no hash tag`: {Client: safe, Control: cluster},
	} {
		_, err := registry.New(c)
		require.ErrorIs(t, err, lease.ErrUnsafeClient, says)
		require.ErrorContains(t, err, says)
	}
}
