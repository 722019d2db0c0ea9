package chaos

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

func TestCallsOfAReplicaAreToldApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := newMember(t, server, 400*time.Millisecond,
		registry.Config{Instance: "a", HeartbeatInterval: memberInterval, HeartbeatTTL: memberTTL, Drain: time.Second},
		janitor.Config{Interval: memberInterval, LeaseTTL: 4 * time.Second, RedisShare: 1})
	calls := map[string]*proxy.Score{}
	for name, match := range map[string]func(proxy.Request) bool{
		"boot": isBoot, "beat": isBeat, "register": isRegister, "heal": isHeal, "release": isRelease, "goodbye": isGoodbye,
		"tick": isTick, "open": isOpen, "batch": isBatch, "acquire": isAcquire, "renewal": isRenewal, "resignation": isResignation, "lease": isLeaseCall,
	} {
		calls[name] = m.proxy.Answers(match)
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
		return m.proxy.verdicts()["DONE"] > 0 && len(calls["heal"].Counts()) > 0
	}))
	kept.Release()
	m.leave()
	<-m.ended
	require.NoError(t, m.err)
	for name, s := range calls {
		require.NotEmpty(t, s.Counts(), name)
	}
	require.Equal(t, calls["batch"].Counts(), m.proxy.verdicts())
	require.Zero(t, m.proxy.unanswered())
	require.Zero(t, m.proxy.NotUnderstood())
}

func TestVerdictIsCountedThoughTheReplicaNeverHearsIt(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		l := newProxy(t, redistest.Start(t).Addr())
		c := redis.NewClient(&redis.Options{Addr: l.Addr(), Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: patience})
		defer c.Close()
		g := registry.NewGuard(c, c, registry.Layout{}, time.Second, time.Second, "a")
		b := registry.Batch{ID: registry.BatchID{Epoch: 7, N: 1}, Token: "no", Body: registry.EvictEntries, Keys: g.EntryKeys("x"), Owner: "x", Items: []string{"1"}}
		a, err := g.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, registry.Fenced, a.Verdict)
		require.Equal(t, map[string]int{"error NOSCRIPT": 1, "FENCED": 1}, l.verdicts())
		r := l.LoseReply(isBatch, 1)
		_, err = g.Do(t.Context(), b)
		require.Error(t, err)
		require.Equal(t, 1, r.Hits())
		require.Equal(t, 2, l.verdicts()["FENCED"])
		l.AnswerWith(isBatch, "READONLY You can't write against a read only replica.", 1)
		_, err = g.Do(t.Context(), b)
		require.ErrorContains(t, err, "READONLY")
		require.Equal(t, 2, l.verdicts()["FENCED"])
		require.Zero(t, l.unanswered())
		require.Zero(t, l.NotUnderstood())
	}
}
