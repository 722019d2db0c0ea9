package chaos

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Tests of what happens to a line as a whole, and of the calls that are told apart on it.

func TestHoldingOneWayOrBoth(t *testing.T) {
	lined(t, func(t *testing.T, server *redistest.Server, l *line, c *redis.Client) {
		direct := server.Client()
		for name, h := range map[string]struct {
			hold    func() *rule
			arrives bool
		}{
			"both":     {l.hold, false},
			"requests": {l.holdRequests, false},
			"replies":  {l.holdReplies, true},
		} {
			require.NoError(t, c.Ping(t.Context()).Err()) // there is a connection
			r := h.hold()
			result := make(chan error)
			go func() { result <- c.Set(t.Context(), name, "1", 0).Err() }()
			require.True(t, becomes(func() bool { return r.hits() == 1 }), name)
			if h.arrives {
				require.True(t, becomes(func() bool { return direct.Exists(t.Context(), name).Val() == 1 }))
			} else {
				require.Zero(t, direct.Exists(t.Context(), name).Val())
			}
			require.Empty(t, result)
			r.end()
			require.NoError(t, <-result, name)
		}
	})
}

func TestOverlappingHoldsBothCount(t *testing.T) {
	lined(t, func(t *testing.T, server *redistest.Server, l *line, c *redis.Client) {
		first, second := l.hold(), l.holdRequests()
		requireTimeout(t, c.Set(shortly(t), "late", "1", 0).Err())
		first.end()
		require.True(t, becomes(func() bool { return second.hits() == 1 }))
		require.Zero(t, server.Client().Exists(t.Context(), "late").Val())
	})
}

func TestRepliesAreLostForGood(t *testing.T) {
	lined(t, func(t *testing.T, server *redistest.Server, l *line, c *redis.Client) {
		require.NoError(t, c.Ping(t.Context()).Err())
		r := l.loseReplies()
		requireTimeout(t, c.Set(shortly(t), "k", "1", 0).Err())
		require.Equal(t, int64(1), server.Client().Exists(t.Context(), "k").Val())
		require.Positive(t, r.hits())
		r.end()
		require.NoError(t, c.Ping(t.Context()).Err())
	})
}

func TestCutResetAndRefuse(t *testing.T) {
	lined(t, func(t *testing.T, _ *redistest.Server, l *line, c *redis.Client) {
		require.Zero(t, l.cut())
		for _, end := range []func() int{l.cut, l.reset} {
			c.Ping(t.Context()) // the pool may have to find out first
			require.True(t, becomes(func() bool { return c.Ping(t.Context()).Err() == nil }))
			sub := c.Subscribe(t.Context(), "c")
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, end(), 2)
			_, err = sub.ReceiveTimeout(t.Context(), patience)
			require.Error(t, err)
			var timeout net.Error
			require.False(t, errors.As(err, &timeout) && timeout.Timeout(), err)
			require.NoError(t, sub.Close())
		}
		l.cut()
		r := l.refuse()
		require.True(t, becomes(func() bool { return c.Ping(t.Context()).Err() != nil && r.hits() > 0 }))
		r.end()
		require.True(t, becomes(func() bool { return c.Ping(t.Context()).Err() == nil }))
	})
}

func TestHalfOpenClosesNothing(t *testing.T) {
	lined(t, func(t *testing.T, server *redistest.Server, l *line, c *redis.Client) {
		require.NoError(t, c.Ping(t.Context()).Err())
		r := l.halfOpen()
		requireTimeout(t, c.Set(shortly(t), "a", "1", 0).Err()) // on the old connection
		require.Equal(t, 1, r.hits())
		requireTimeout(t, c.Set(shortly(t), "b", "1", 0).Err()) // on a new one
		require.Greater(t, r.hits(), 1)
		r.end()
		require.True(t, becomes(func() bool { return c.Set(shortly(t), "c", "1", 0).Err() == nil }))
		require.Equal(t, []string{"c"}, server.Client().Keys(t.Context(), "*").Val())
	})
}

func TestRetargetIsAFailover(t *testing.T) {
	lined(t, func(t *testing.T, server *redistest.Server, l *line, c *redis.Client) {
		other := redistest.Start(t)
		require.NoError(t, c.Set(t.Context(), "k", "old", 0).Err())
		require.NoError(t, other.Client().Set(t.Context(), "k", "new", 0).Err())
		require.Positive(t, l.retarget(other.Addr()))
		require.True(t, becomes(func() bool { return c.Get(t.Context(), "k").Val() == "new" }))
	})
}

func TestLossAndSlownessOnlyDelay(t *testing.T) {
	lined(t, func(t *testing.T, _ *redistest.Server, l *line, c *redis.Client) {
		lost := l.loss(1)
		begun := time.Now()
		require.ErrorIs(t, c.Get(t.Context(), "none").Err(), redis.Nil)
		require.GreaterOrEqual(t, time.Since(begun), 2*1400*time.Millisecond)
		require.GreaterOrEqual(t, lost.hits(), 2)
		lost.end()

		slow := l.slow(100_000)
		begun = time.Now()
		value := strings.Repeat("v", 20_000)
		require.NoError(t, c.Set(t.Context(), "k", value, 0).Err())
		require.Equal(t, value, c.Get(t.Context(), "k").Val())
		require.GreaterOrEqual(t, time.Since(begun), 400*time.Millisecond)
		require.Positive(t, slow.hits())
		slow.end()

		late := l.delay(10 * time.Millisecond)
		require.True(t, becomes(func() bool { return c.Ping(t.Context()).Err() == nil && late.hits() > 2 }))
	})
}

func TestCallsOfAReplicaAreToldApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := newMember(t, server, 400*time.Millisecond,
		registry.Config{Instance: "a", HeartbeatInterval: memberInterval, HeartbeatTTL: memberTTL, Drain: time.Second},
		janitor.Config{Interval: memberInterval, LeaseTTL: 4 * time.Second, RedisShare: 1})
	calls := map[string]*score{}
	for name, match := range map[string]func(request) bool{
		"boot": isBoot, "beat": isBeat, "register": isRegister, "heal": isHeal, "release": isRelease, "goodbye": isGoodbye,
		"tick": isTick, "open": isOpen, "batch": isBatch, "acquire": isAcquire, "renewal": isRenewal, "resignation": isResignation, "lease": isLeaseCall,
	} {
		calls[name] = m.line.answers(match)
	}
	dead := server.Client()
	require.NoError(t, dead.HSet(t.Context(), keyNames.Registry(), "1", "dead").Err())
	require.NoError(t, dead.SAdd(t.Context(), keyNames.Roster(), "dead").Err())
	gone := m.Register(t.Context(), "2")
	require.NoError(t, gone.Wait(t.Context()))
	gone.Release()
	kept := m.Register(t.Context(), "3")
	require.NoError(t, kept.Wait(t.Context()))
	require.True(t, becomes(func() bool {
		_ = dead.HDel(t.Context(), keyNames.Registry(), "3").Err() // until it is healed
		return m.line.verdicts()["DONE"] > 0 && len(calls["heal"].counts()) > 0
	}))
	kept.Release()
	m.leave()
	<-m.ended
	require.NoError(t, m.err)
	for name, s := range calls {
		require.NotEmpty(t, s.counts(), name)
	}
	require.Equal(t, calls["batch"].counts(), m.line.verdicts())
	require.Zero(t, m.line.unanswered())
	require.Zero(t, m.line.notUnderstood())
}

func TestVerdictIsCountedThoughTheReplicaNeverHearsIt(t *testing.T) {
	lined(t, func(t *testing.T, _ *redistest.Server, l *line, c *redis.Client) {
		g := guard.New(c, c, registry.Layout{}, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "a")
		b := guard.Batch{ID: guard.BatchID{Epoch: 7, N: 1}, Token: "no", Body: registry.EvictEntries, Keys: registry.EntryKeys(registry.Layout{}, "x"), Owner: "x", Items: []string{"1"}}
		a, err := g.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, guard.Fenced, a.Verdict)
		require.Equal(t, map[string]int{"error NOSCRIPT": 1, "FENCED": 1}, l.verdicts())
		r := l.loseReply(isBatch, 1)
		_, err = g.Do(t.Context(), b)
		require.Error(t, err)
		require.Equal(t, 1, r.hits())
		require.Equal(t, 2, l.verdicts()["FENCED"])
		l.answerWith(isBatch, "READONLY You can't write against a read only replica.", 1)
		_, err = g.Do(t.Context(), b)
		require.ErrorContains(t, err, "READONLY")
		require.Equal(t, 2, l.verdicts()["FENCED"])
		require.Zero(t, l.unanswered())
	})
}
