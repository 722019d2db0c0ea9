package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func (w *bubble) boot() string {
	_, token, _ := strings.Cut(w.Get(w.t.Context(), w.Heartbeat("r1")).Val(), "/")
	return token
}

func TestEveryFieldOfTheStatusIsTrue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		refusing := &faults{}
		refusing.set(func(redis.Cmder) error { return proto("WRONGPASS invalid username-password pair") }, nil)
		r := w.start("r1", func(c *registry.Config) {
			c.Control.(*redis.Client).AddHook(redistest.Intercept(refusing.meets))
			c.HeartbeatInterval, c.HeartbeatTTL, c.Drain = 20*time.Second, 80*time.Second, time.Minute
		})
		want := registry.Status{Instance: "r1", Interval: "20s", TTL: "1m20s", IndexKept: true}
		is := func(failing map[string]string) {
			t.Helper()
			synctest.Wait()
			want.Failing = failing
			require.Equal(t, want, r.Status())
		}
		beaten := func() {
			t.Helper()
			require.WithinDuration(t, time.Now(), r.Status().LastBeat, 20*time.Second)
			want.LastBeat = r.Status().LastBeat
		}
		early := r.Register("early")
		want.Registered, want.Held, want.Pending, want.Refused = 1, 1, 1, "WRONGPASS invalid username-password pair"
		is(map[string]string{"heartbeat": want.Refused})

		refusing.set(nil, nil)
		time.Sleep(3 * time.Second)
		require.NoError(t, early.Wait(t.Context()))
		beaten()
		want.Boot, want.Pending, want.Refused, want.Healed = w.boot(), 0, "", 1 // it had waited too long
		is(map[string]string{})

		r.registerMany(t, 5)
		w.HSet(t.Context(), w.Registry(), "imei-0", "r2", "imei-1", "r2")
		w.HDel(t.Context(), w.Registry(), "imei-2", "imei-3", "imei-4")
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
	t.Parallel()
	for name, c := range map[string]struct {
		leave func(t *testing.T, r *replica)
		left  int
	}{
		"nothing": {func(*testing.T, *replica) {}, 0},
		"what is held, and what is not released yet": {func(t *testing.T, r *replica) {
			claims := r.registerMany(t, 5)
			r.data.set(always, nil)
			claims[0].Release()
			claims[1].Release()
		}, 5},
		"as many held as not released yet": {func(t *testing.T, r *replica) {
			claims := r.registerMany(t, 2)
			r.data.set(always, nil)
			claims[0].Release()
		}, 2},
		"what was forgotten": {func(t *testing.T, r *replica) {
			claims := r.registerMany(t, 1200)
			r.data.set(always, nil)
			one := r.Register("finds out")
			synctest.Wait()
			one.Release()
			for _, c := range claims {
				c.Release()
			}
		}, 1101},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = true })
				c.leave(t, r)
				synctest.Wait()
				var said any
				r.control.set(func(cmd redis.Cmder) error {
					if strings.HasPrefix(cmd.Name(), "evalsha") {
						said = cmd.Args()[len(cmd.Args())-1]
					}
					return nil
				}, nil)
				w.end(r)
				require.Equal(t, fmt.Sprint(c.left), fmt.Sprint(said))
				require.Equal(t, c.left > 0, w.SIsMember(t.Context(), w.Roster(), "r1").Val())
			})
		})
	}
}
