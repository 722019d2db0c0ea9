package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Other services read these keys: the names are part of the contract.
func TestTheKeysHaveTheNamesThatOthersRead(t *testing.T) {
	t.Parallel()
	for _, l := range []guard.Layout{{}, {Prefix: "p:"}} {
		require.Equal(t, l.Prefix+"connections:registry", l.Registry())
		require.Equal(t, l.Prefix+"instance:heartbeat:i", l.Heartbeat("i"))
		require.Equal(t, l.Prefix+"instance:devices:i", l.Devices("i"))
		require.Equal(t, l.Prefix+"instances:roster", l.Roster())
		require.Equal(t, l.Prefix+"janitor:leader", l.Lease())
		require.Equal(t, l.Prefix+"janitor:witness", l.Witness())
		require.Equal(t, l.Prefix+"janitor:paused", l.Paused())
		require.Equal(t, l.Prefix+"janitor:log", l.Log())
		require.Equal(t, l.Prefix+"janitor:beats", l.Beats())
	}
}

func TestAnAnswerOfTheGuardThatMakesNoSenseIsAnError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, s *term) {
		g := &redistest.Garbled{}
		s.AddHook(redistest.Intercept(g.Meets))
		for _, change := range redistest.Garblings(5) {
			g.Set(change)
			_, err := s.guard.Do(t.Context(), s.batch(1))
			require.ErrorContains(t, err, "unexpected answer")
		}
		for _, change := range redistest.Garblings(0) {
			g.Set(change)
			_, err := s.guard.Tick(t.Context())
			require.ErrorContains(t, err, "unexpected answer")
			_, _, err = s.guard.Open(t.Context(), s.lease)
			require.ErrorContains(t, err, "values in the answer")
		}
	})
}

func TestARosterOfAnotherTypeHasNoInstances(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		s.must(s.Del(t.Context(), s.Roster()))
		s.must(s.Set(t.Context(), s.Roster(), "no set", 0))
		require.Zero(t, s.tick().Instances)
	})
}

func TestTheGuardSaysWhenRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, s *term) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		v, err := s.guard.Forget(over, s.lease, "dead", 0)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, v)
		_, err = s.guard.Read(over, 0)
		require.ErrorIs(t, err, context.Canceled)
		v, _, err = s.guard.Write(over, s.lease, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, v)
		_, err = s.guard.Fate(over, s.batch(7))
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.guard.Tick(over)
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.guard.Do(over, s.batch(8))
		require.ErrorIs(t, err, context.Canceled)
		var newest uint64
		v, newest, err = s.guard.Open(over, s.lease)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, v)
		require.Zero(t, newest)
	})
}

func TestTheProcessorTimeOfRedisGrows(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	before, err := s.guard.CPU(ctx)
	require.NoError(t, err)
	require.Positive(t, before)
	s.must(s.Eval(ctx, "for i = 1, 3000000 do end return 1", nil))
	after, err := s.guard.CPU(ctx)
	require.NoError(t, err)
	require.Greater(t, after, before)

	_, err = s.poor("leader", "-info").CPU(ctx)
	require.Error(t, err, "what it does not say is not known")
}
