package harness

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

func TestCallsOfAReplicaAreToldApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := NewProxy(t, server.Addr())
	data, control := Clients(p.Addr(), 400*time.Millisecond)
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: "a", HeartbeatInterval: time.Second,
		HeartbeatTTL: 3 * time.Second, Drain: time.Second,
	})
	require.NoError(t, err)
	sweeps, err := janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Interval: time.Second, LeaseTTL: 4 * time.Second,
		RedisShare: 1,
	})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	both := pool.New().WithContext(ctx).WithCancelOnError()
	both.Go(reg.Run)
	both.Go(sweeps.Run)
	named := func(name string) func(proxy.Request) bool {
		return func(r proxy.Request) bool { return Named(r) == name }
	}
	opens := func(r proxy.Request) bool { // a term in the log
		keys, _ := r.Script()
		return len(keys) == 3 && r.On(KeyNames.Log(), KeyNames.Lease())
	}
	calls := map[string]*proxy.Score{}
	for name, match := range map[string]func(proxy.Request) bool{
		"boot": named("boot"), "beat": IsBeat, "register": IsRegister, "heal": IsHeal, "release": IsRelease, "goodbye": named("goodbye"),
		"tick": IsTick, "open": opens, "batch": IsBatch, "acquire": IsAcquire,
	} {
		calls[name] = p.Answers(match)
	}
	dead := server.Client()
	require.NoError(t, dead.HSet(t.Context(), KeyNames.Registry(), "1", "dead").Err())
	require.NoError(t, dead.SAdd(t.Context(), KeyNames.Roster(), "dead").Err())
	gone := reg.Register("2", Nobody)
	require.NoError(t, gone.Wait(t.Context()))
	gone.Release()
	kept := reg.Register("3", Nobody)
	require.NoError(t, kept.Wait(t.Context()))
	require.True(t, Becomes(func() bool {
		_ = dead.HDel(t.Context(), KeyNames.Registry(), "3").Err() // until it is healed
		return p.Verdicts()["DONE"] > 0 && len(calls["heal"].Counts()) > 0
	}))
	kept.Release()
	leave()
	require.NoError(t, errors.Join(both.Wait(), data.Close(), control.Close()))
	for name, s := range calls {
		require.NotEmpty(t, s.Counts(), name)
	}
	require.Equal(t, calls["batch"].Counts(), p.Verdicts())
	require.Zero(t, p.Unanswered())
	require.Zero(t, p.NotUnderstood())
}

func TestVerdictIsCountedThoughTheReplicaNeverHearsIt(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		l := NewProxy(t, redistest.Start(t).Addr())
		c := redis.NewClient(&redis.Options{Addr: l.Addr(), Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: Patience})
		defer c.Close()
		g := guard.New(c, c, registry.Layout{}, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "a")
		b := guard.Batch{ID: guard.BatchID{Epoch: 7, N: 1}, Token: "no", Body: guard.EvictEntries,
			Keys: guard.EntryKeys(registry.Layout{}, "x"), Owner: "x", Items: []string{"1"}}
		a, err := g.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, guard.Fenced, a.Verdict)
		require.Equal(t, map[string]int{"error NOSCRIPT": 1, "FENCED": 1}, l.Verdicts())
		r := l.LoseReply(IsBatch, 1)
		_, err = g.Do(t.Context(), b)
		require.Error(t, err)
		require.Equal(t, 1, r.Hits())
		require.Equal(t, 2, l.Verdicts()["FENCED"])
		l.AnswerWith(IsBatch, "READONLY You can't write against a read only replica.", 1)
		_, err = g.Do(t.Context(), b)
		require.ErrorContains(t, err, "READONLY")
		require.Equal(t, 2, l.Verdicts()["FENCED"])
		require.Zero(t, l.Unanswered())
		require.Zero(t, l.NotUnderstood())
	}
}
