package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAnEntryIsThereWhileItsClaimIsAndItsOwnerBeats(t *testing.T) {
	inBubble(t, func(w *bubble) {
		ctx := w.Context()
		sub := w.Subscribe(ctx, w.News())
		defer sub.Close()
		r := w.start("r1")
		c := r.register("imei")
		w.is("imei", "r1")
		require.Equal(w, []string{"imei"}, w.SMembers(ctx, w.Devices("r1")).Val())
		require.Equal(w, []string{"r1"}, w.SMembers(ctx, w.Roster()).Val())

		beats := map[string]bool{}
		for range 100 {
			left := w.PTTL(ctx, w.Heartbeat("r1")).Val()
			require.Greater(w, left, 59*time.Second, "refreshed every 30 s")
			require.LessOrEqual(w, left, 90*time.Second)
			beats[w.Get(ctx, w.Heartbeat("r1")).Val()] = true
			time.Sleep(3 * time.Second)
		}
		require.InDelta(w, 10, len(beats), 1)

		c.Release()
		c.Release()
		synctest.Wait()
		w.is("imei", "")
		require.Zero(w, r.Status().Held)
		w.end(r)
		require.Equal(w, []string{w.Beats()}, w.Keys(ctx, "*").Val(), "goodbye leaves nothing behind")
		for range 2 {
			news, err := sub.ReceiveMessage(ctx)
			require.NoError(w, err)
			require.Equal(w, "r1", news.Payload, "the leader is told who comes, and who leaves")
		}
	})
}

func TestTheNewestBootOfAnIdWins(t *testing.T) {
	inBubble(t, func(w *bubble) {
		older := w.start("r1")
		c := older.register("imei")
		time.Sleep(time.Second)
		newer := w.start("r1")
		w.is("imei", "", "what the former life left is handed back")
		newer.register("other")
		require.ErrorIs(w, older.wait(), registry.ErrReplaced)
		require.True(w, older.Status().Draining, "no socket may be sent to it")
		require.ErrorIs(w, c.Err(), registry.ErrReplaced)
		c.Release()
		older.stop()
		synctest.Wait()
		w.is("other", "r1")
		require.Positive(w, w.PTTL(w.Context(), w.Heartbeat("r1")).Val(), "it leaves the heartbeat alone")
		w.start("r1")
		newer.stop()
		require.ErrorIs(w, newer.wait(), registry.ErrReplaced, "while it stops")
		require.Positive(w, w.PTTL(w.Context(), w.Heartbeat("r1")).Val())
	})
}

func TestANewLifeHandsBackWhatTheFormerLeftBeforeItStarts(t *testing.T) {
	withAndWithoutIndex(t, func(w *bubble, index func(*registry.Config)) {
		ctx := w.Context()
		former := w.start("r1", index)
		former.registerMany(1100)
		w.kill(former)
		w.write("imei-5", "r2")
		w.SRem(ctx, w.Devices("r1"), "imei-6") // which is in no index
		if former.Status().IndexKept {
			w.SAdd(ctx, w.Devices("r1"), "in the index only")
		}
		require.Len(w, w.HGetAll(ctx, w.Registry()).Val(), 1100)

		r := w.start("r1", index)
		<-r.Started()
		require.Equal(w, map[string]string{"imei-5": "r2"}, w.HGetAll(ctx, w.Registry()).Val())
		require.Empty(w, w.SMembers(ctx, w.Devices("r1")).Val())
		require.Zero(w, r.Remembered())
		r.register("imei-1")
		time.Sleep(2 * interval)
		w.is("imei-1", "r1")
	})
}

func TestAHandBackThatRedisInterruptsIsMadeUpForAndKeepsNoListenerShut(t *testing.T) {
	type row struct {
		of     func(r *replica) *faults
		breaks func(redis.Cmder) error
		op     string
	}
	data, control := func(r *replica) *faults { return &r.data }, func(r *replica) *faults { return &r.control }
	eachBubble(t, map[string]row{
		"Redis is away":          {control, always, "heartbeat"},
		"nothing can be written": {data, failing("evalsha"), "heartbeat"},
		"no scan works":          {data, failing("hscan"), "compare"},
	}, func(w *bubble, c row) {
		w.write("left", "r1", "kept", "r1", "theirs", "r2")
		w.first = func(r *replica) { c.of(r).set(c.breaks, nil) }
		r := w.start("r1")
		kept := r.Register("kept")
		pass(10 * time.Second)
		<-r.Started()
		require.Contains(w, r.Status().Failing[c.op], errLost.Error())
		w.is("left", "r1")
		r.loses(nil, nil)
		pass(10 * time.Second)
		require.Equal(w, map[string]string{"kept": "r1", "theirs": "r2"}, w.HGetAll(w.Context(), w.Registry()).Val())
		require.Empty(w, r.Status().Failing)
		kept.Release()
	})
}

func TestDrainBeatsUntilClaimsAreReleasedAndGoodbyeSaysWhatIsLeft(t *testing.T) {
	inBubble(t, func(w *bubble) {
		ctx := w.Context()
		r := w.start("r1", func(c *registry.Config) { c.Drain = 5 * time.Minute })
		c, leave := r.register("imei"), r.HoldHeartbeat()
		r.stop()
		time.Sleep(2 * time.Minute)
		w.is("imei", "r1")
		require.Positive(w, w.PTTL(ctx, w.Heartbeat("r1")).Val(), "draining it still beats")
		require.True(w, r.Status().Draining)
		c.Release()
		time.Sleep(2 * time.Minute)
		require.Positive(w, w.PTTL(ctx, w.Heartbeat("r1")).Val(), "somebody stays")
		leave()
		leave()
		require.NoError(w, r.wait())
		require.Equal(w, []string{w.Beats()}, w.Keys(ctx, "*").Val())

		r = w.start("r2")
		r.register("imei")
		r.stop()
		require.NoError(w, r.wait(), "the drain time passes")
		w.is("imei", "r2")
		require.Zero(w, w.Exists(ctx, w.Heartbeat("r2")).Val(), "so that the leader sweeps the rest at once")
		require.True(w, w.SIsMember(ctx, w.Roster(), "r2").Val())
		require.Equal(w, doubt.Bye, doubt.Parse(w.HGet(ctx, w.Beats(), "r2").Val()).State, "this was no silent death")
	})
}

func TestThoseThatBeatSeldomKeepNoOtherOfTheirControlClientFromBeating(t *testing.T) {
	inBubble(t, func(w *bubble) {
		o := lease.Options(w.options)
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 40*time.Millisecond, 40*time.Millisecond,
			40*time.Millisecond, 40*time.Millisecond
		control := redis.NewClient(o)
		w.Cleanup(func() { require.NoError(w, control.Close()) })
		for id, interval := range map[string]time.Duration{
			"seldom": 30050 * time.Millisecond, "seldom-too": 31 * time.Second, "often": 100 * time.Millisecond,
		} {
			r := w.start(id, func(c *registry.Config) {
				require.NoError(w, c.Control.Close())
				c.Control, c.HeartbeatInterval, c.HeartbeatTTL = control, interval, 3*interval
			})
			defer w.end(r)
		}
		for range 5_000 {
			time.Sleep(20 * time.Millisecond)
			require.EqualValues(w, 1, w.Exists(w.Context(), w.Heartbeat("often")).Val())
		}
	})
}

func TestAGoodbyeIsSaidAgainAfterATenthOfAnIntervalOrASecond(t *testing.T) {
	type row struct{ interval, step time.Duration }
	eachBubble(t, map[string]row{
		"30 s": {30 * time.Second, time.Second},
		"10 s": {10 * time.Second, time.Second},
		"5 s":  {5 * time.Second, time.Second / 2},
	}, func(w *bubble, c row) {
		step := c.step
		r := w.start("r1", func(to *registry.Config) { to.HeartbeatInterval, to.HeartbeatTTL = c.interval, 3*c.interval })
		begun, tries := time.Now(), 0
		r.control.set(func(redis.Cmder) error {
			require.Equal(w, min(time.Duration(tries)*step, 3*time.Second), time.Since(begun))
			tries++
			return errLost
		}, nil)
		w.end(r)
		require.GreaterOrEqual(w, tries, int(3*time.Second/step))
		require.Equal(w, 3*time.Second, time.Since(begun))
		require.Positive(w, w.PTTL(w.Context(), w.Heartbeat("r1")).Val(), "the heartbeat is left to expire")
	})
}
