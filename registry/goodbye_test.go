package registry_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
				require.Empty(t, w.Keys(t.Context(), "*").Val())
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
		require.True(t, w.HExists(t.Context(), w.Witness(), "bye:r1").Val())
	})
}

// The mark of an owner that can no longer be swept is deleted after a day.
func TestAMarkOfADayIsKeptAndAnOlderOneIsNot(t *testing.T) {
	t.Parallel()
	for age, kept := range map[time.Duration]bool{24 * time.Hour: true, 24*time.Hour + time.Second: false} {
		inBubble(t, func(t *testing.T, w *bubble) {
			r := w.start("r1")
			r.register(t, "imei")
			r.stop()
			time.Sleep(9 * time.Second) // a second before the drain time is over
			now := time.Now().Add(time.Second)
			require.NoError(t, w.HSet(t.Context(), w.Witness(), "bye:old", now.Add(-age).Unix(), "bye:odd", "x").Err())
			require.NoError(t, r.wait())
			marks := w.HGetAll(t.Context(), w.Witness()).Val()
			require.Equal(t, fmt.Sprint(now.Unix()), marks["bye:r1"])
			require.NotContains(t, marks, "bye:odd", "no time is older than any")
			if kept {
				require.Contains(t, marks, "bye:old")
			} else {
				require.NotContains(t, marks, "bye:old")
			}
		})
	}
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
