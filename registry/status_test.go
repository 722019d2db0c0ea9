package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func (w *bubble) boot() string {
	_, token, _ := strings.Cut(w.Get(w.Context(), w.Heartbeat("r1")).Val(), "/")
	return token
}

func TestEveryFieldOfTheStatusIsTrue(t *testing.T) {
	inBubble(t, func(w *bubble) {
		w.first = func(r *replica) {
			r.control.set(func(redis.Cmder) error { return proto("WRONGPASS invalid username-password pair") }, nil)
		}
		r := w.start("r1", func(c *registry.Config) {
			c.HeartbeatInterval, c.HeartbeatTTL, c.Drain = 20*time.Second, 80*time.Second, time.Minute
		})
		want := registry.Status{Instance: "r1", Interval: "20s", TTL: "1m20s", IndexKept: true}
		is := func(failing map[string]string) {
			w.Helper()
			synctest.Wait()
			want.Failing = failing
			require.Equal(w, want, r.Status())
		}
		beaten := func() {
			w.Helper()
			require.WithinDuration(w, time.Now(), r.Status().LastBeat, 20*time.Second)
			want.LastBeat = r.Status().LastBeat
		}
		early := r.Register("early")
		want.Registered, want.Held, want.Pending, want.Refused = 1, 1, 1, "WRONGPASS invalid username-password pair"
		is(map[string]string{"heartbeat": want.Refused})

		r.control.set(nil, nil)
		time.Sleep(3 * time.Second)
		require.NoError(w, early.Wait(w.Context()))
		beaten()
		want.Boot, want.Pending, want.Refused, want.Healed = w.boot(), 0, "", 1 // it had waited too long
		require.Equal(w, 1.0, r.failures("register"))
		is(map[string]string{})

		r.registerMany(5)
		w.write("imei-0", "r2", "imei-1", "r2")
		w.drop("imei-2", "imei-3", "imei-4")
		time.Sleep(11 * 20 * time.Second)
		beaten()
		want.Heard = true
		want.Registered, want.Held, want.Disputed, want.Pending, want.Healed = 6, 6, 2, 2, 4
		is(map[string]string{})

		r.data.set(failing("evalsha"), nil)
		early.Release()
		want.Held, want.Pending = 5, 3
		is(map[string]string{"release": "connection lost"})
		r.stop()
		want.Draining = true
		is(want.Failing)
		w.kill(r)
	})
}

// A goodbye counts the claims not handed back: held ones, those whose release did not land, and one
// more for forgotten ones.
func TestAGoodbyeCountsWhatIsLeft(t *testing.T) {
	type row struct {
		leave func(r *replica)
		left  int
	}
	eachBubble(t, map[string]row{
		"nothing": {func(*replica) {}, 0},
		"what is held, and what is not released yet": {func(r *replica) {
			claims := r.registerMany(5)
			r.data.set(always, nil)
			claims[0].Release()
			claims[1].Release()
		}, 5},
		"as many held as not released yet": {func(r *replica) {
			claims := r.registerMany(2)
			r.data.set(always, nil)
			claims[0].Release()
		}, 2},
		"what was forgotten": {func(r *replica) {
			claims := r.registerMany(1200)
			r.data.set(always, nil)
			one := r.Register("finds out")
			synctest.Wait()
			one.Release()
			for _, c := range claims {
				c.Release()
			}
		}, 1101},
	}, func(w *bubble, c row) {
		r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = true })
		c.leave(r)
		synctest.Wait()
		var said any
		r.control.set(func(cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "evalsha") {
				said = cmd.Args()[len(cmd.Args())-1]
			}
			return nil
		}, nil)
		w.end(r)
		require.Equal(w, fmt.Sprint(c.left), fmt.Sprint(said))
		require.Equal(w, c.left > 0, w.SIsMember(w.Context(), w.Roster(), "r1").Val())
	})
}
