package registry_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

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
			require.Positive(t, w.PTTL(t.Context(), w.Heartbeat("r1")).Val(), "the heartbeat is left to expire")
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
