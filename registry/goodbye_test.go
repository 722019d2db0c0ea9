package registry_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard/doubt"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAGoodbyeIsSaidOnceAndAgainWhereItWasNotHeard(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int64{"it is heard": 0, "two are lost": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("r1")
				var said atomic.Int64
				r.control.set(func(cmd redis.Cmder) error {
					if strings.HasPrefix(cmd.Name(), "evalsha") && said.Add(1) <= lost {
						return errLost
					}
					return nil
				}, nil)
				w.end(r)
				require.Equal(t, lost+1, said.Load())
				require.Equal(t, []string{w.Beats()}, w.Keys(t.Context(), "*").Val())
			})
		})
	}
}

func TestAGoodbyeIsSaidAgainAfterATenthOfAnIntervalOrASecond(t *testing.T) {
	t.Parallel()
	for interval, step := range map[time.Duration]time.Duration{
		30 * time.Second: time.Second, 10 * time.Second: time.Second, 5 * time.Second: 500 * time.Millisecond,
	} {
		inBubble(t, func(t *testing.T, w *bubble) {
			r := w.start("r1", func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = interval, 3*interval })
			begun, tries := time.Now(), 0
			r.control.set(func(redis.Cmder) error {
				require.Equal(t, min(time.Duration(tries)*step, 3*time.Second), time.Since(begun))
				tries++
				return errLost
			}, nil)
			w.end(r)
			require.GreaterOrEqual(t, tries, int(3*time.Second/step))
			require.Equal(t, 3*time.Second, time.Since(begun))
		})
	}
}

func TestAGoodbyeThatIsNeverHeardKeepsNobodyForLong(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.control.set(always, nil)
		begun := time.Now()
		w.end(r)
		require.LessOrEqual(t, time.Since(begun), 5*time.Second)
		require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), "the heartbeat is left to expire")
	})
}

func TestAReleaseThatRedisMissedIsLeftBehindAtTheGoodbyeAlsoWithoutAnIndex(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = true; c.Drain = time.Minute })
		c := r.register(t, "imei")
		r.data.set(always, nil)
		c.Release()
		synctest.Wait()
		w.end(r)
		require.Equal(t, "r1", w.owner("imei"))
		require.True(t, w.SIsMember(t.Context(), w.Roster(), "r1").Val())
		require.Equal(t, doubt.Bye, doubt.Parse(w.HGet(t.Context(), w.Beats(), "r1").Val()).State)
	})
}

func TestWhoComesAndWhoLeavesTellsTheLeader(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		sub := w.Subscribe(t.Context(), w.News())
		defer func() { require.NoError(t, sub.Close()) }()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		r := w.start("r1")
		w.end(r)
		for range 2 {
			msg, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Equal(t, "r1", msg.Payload)
		}
	})
}
