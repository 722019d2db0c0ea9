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
	inWorlds(t, func(s *term) {
		g := &redistest.Garbled{}
		s.AddHook(redistest.Intercept(g.Meets))
		for _, change := range redistest.Garblings(5) {
			g.Set(change)
			_, err := s.guard.Do(s.Context(), s.batch(1))
			require.ErrorContains(s, err, "unexpected answer")
		}
		for _, change := range redistest.Garblings(0) {
			g.Set(change)
			_, err := s.guard.Tick(s.Context())
			require.ErrorContains(s, err, "unexpected answer")
			_, _, err = s.guard.Open(s.Context(), s.lease)
			require.ErrorContains(s, err, "values in the answer")
		}
	})
}

func TestARosterOfAnotherTypeHasNoInstances(t *testing.T) {
	inWorlds(t, func(s *term) {
		s.do("DEL", s.Roster())
		s.do("SET", s.Roster(), "no set")
		require.Zero(s, s.tick().Instances)
	})
}

func TestTheGuardSaysWhenRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(s *term) {
		over, cancel := context.WithCancel(s.Context())
		cancel()
		v, err := s.guard.Forget(over, s.lease, "dead", 0)
		require.ErrorIs(s, err, context.Canceled)
		require.Empty(s, v)
		_, err = s.guard.Read(over, 0)
		require.ErrorIs(s, err, context.Canceled)
		v, _, err = s.guard.Write(over, s.lease, nil)
		require.ErrorIs(s, err, context.Canceled)
		require.Empty(s, v)
		_, err = s.guard.Fate(over, s.batch(7))
		require.ErrorIs(s, err, context.Canceled)
		_, err = s.guard.Tick(over)
		require.ErrorIs(s, err, context.Canceled)
		_, err = s.guard.Do(over, s.batch(8))
		require.ErrorIs(s, err, context.Canceled)
		var newest uint64
		v, newest, err = s.guard.Open(over, s.lease)
		require.ErrorIs(s, err, context.Canceled)
		require.Empty(s, v)
		require.Zero(s, newest)
	})
}

func TestTheProcessorTimeOfRedisGrows(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
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
