package proxy

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Tests of what happens to a proxy as a whole, and of the calls that are told apart on it.

func holdRequests(l *Proxy) *Rule { return l.rule(&Rule{act: actHold, ways: requestsOnly}) }

func TestHoldingOneWayOrBoth(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		direct := server.Client()
		for name, h := range map[string]struct {
			hold    func() *Rule
			arrives bool
		}{
			"both":     {l.Hold, false},
			"requests": {func() *Rule { return holdRequests(l) }, false},
			"replies":  {l.HoldReplies, true},
		} {
			require.NoError(t, c.Ping(t.Context()).Err()) // there is a connection
			r := h.hold()
			result := make(chan error)
			go func() { result <- c.Set(t.Context(), name, "1", 0).Err() }()
			until(t, func() bool { return r.Hits() == 1 })
			if h.arrives {
				until(t, func() bool { return has(t, direct, name) })
			} else {
				require.False(t, has(t, direct, name))
			}
			require.Empty(t, result)
			r.End()
			require.NoError(t, <-result, name)
		}
	})
}

func TestOverlappingHoldsBothCount(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		first, second := l.Hold(), holdRequests(l)
		requireTimeout(t, c.Set(shortly(t), "late", "1", 0).Err())
		first.End()
		until(t, func() bool { return second.Hits() == 1 })
		require.Zero(t, server.Client().Exists(t.Context(), "late").Val())
	})
}

func TestRepliesAreLostForGood(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		require.NoError(t, c.Ping(t.Context()).Err())
		r := l.LoseReplies()
		requireTimeout(t, c.Set(shortly(t), "k", "1", 0).Err())
		require.Equal(t, int64(1), server.Client().Exists(t.Context(), "k").Val())
		require.Positive(t, r.Hits())
		r.End()
		require.NoError(t, c.Ping(t.Context()).Err())
	})
}

func TestResetAndRefuse(t *testing.T) {
	proxied(t, func(t *testing.T, _ *redistest.Server, l *Proxy, c *redis.Client) {
		require.Zero(t, l.Reset())
		answers := func() bool { return c.Ping(t.Context()).Err() == nil }
		until(t, answers)
		sub := c.Subscribe(t.Context(), "c")
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, l.Reset(), 2)
		_, err = sub.ReceiveTimeout(t.Context(), patient)
		require.Error(t, err)
		var timeout net.Error
		require.False(t, errors.As(err, &timeout) && timeout.Timeout(), err)
		require.NoError(t, sub.Close())
		r := l.Refuse()
		until(t, func() bool { return !answers() && r.Hits() > 0 })
		r.End()
		until(t, answers)
	})
}

func TestHalfOpenClosesNothing(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		require.NoError(t, c.Ping(t.Context()).Err())
		r := l.HalfOpen()
		requireTimeout(t, c.Set(shortly(t), "a", "1", 0).Err()) // on the old connection
		require.Equal(t, 1, r.Hits())
		requireTimeout(t, c.Set(shortly(t), "b", "1", 0).Err()) // on a new one
		require.Greater(t, r.Hits(), 1)
		r.End()
		until(t, func() bool { return c.Set(shortly(t), "c", "1", 0).Err() == nil })
		require.Equal(t, []string{"c"}, server.Client().Keys(t.Context(), "*").Val())
	})
}

func TestRetargetIsAFailover(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		other := redistest.Start(t)
		require.NoError(t, c.Set(t.Context(), "k", "old", 0).Err())
		require.NoError(t, other.Client().Set(t.Context(), "k", "new", 0).Err())
		require.Positive(t, l.Retarget(other.Addr()))
		until(t, func() bool { return c.Get(t.Context(), "k").Val() == "new" })
	})
}

func TestLossAndSlownessOnlyDelay(t *testing.T) {
	proxied(t, func(t *testing.T, _ *redistest.Server, l *Proxy, c *redis.Client) {
		lost := l.Loss(1)
		begun := time.Now()
		require.ErrorIs(t, c.Get(t.Context(), "none").Err(), redis.Nil)
		require.GreaterOrEqual(t, time.Since(begun), 2*1400*time.Millisecond)
		require.GreaterOrEqual(t, lost.Hits(), 2)
		lost.End()

		slow := l.Slow(100_000)
		begun = time.Now()
		value := strings.Repeat("v", 20_000)
		require.NoError(t, c.Set(t.Context(), "k", value, 0).Err())
		require.Equal(t, value, c.Get(t.Context(), "k").Val())
		require.GreaterOrEqual(t, time.Since(begun), 400*time.Millisecond)
		require.Positive(t, slow.Hits())
		slow.End()

		late := l.Delay(10 * time.Millisecond)
		until(t, func() bool { return c.Ping(t.Context()).Err() == nil && late.Hits() > 2 })
	})
}
