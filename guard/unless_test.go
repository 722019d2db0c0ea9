package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// unless ticks like a reserve: anybody's tick within d is enough.
func (s *term) unless(t *testing.T, g *guard.Guard, d time.Duration) guard.Witness {
	t.Helper()
	pipe := s.Pipeline()
	tick := g.TickIn(t.Context(), pipe, d)
	_, _ = pipe.Exec(t.Context()) // NOSCRIPT, the first time
	w, err := tick()
	require.NoError(t, err)
	return w
}

func TestATickBesideAYoungerOneOnlyReads(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		full, err := s.guard.Tick(ctx)
		require.NoError(t, err)
		s.witness(t, "last", 9*time.Second)
		before := s.HGetAll(ctx, s.Witness()).Val()
		got := s.unless(t, s.guard, 10*time.Second)
		require.Equal(t, before, s.HGetAll(ctx, s.Witness()).Val())
		got.Now, got.Listening, got.HeldFor = full.Now, full.Listening, full.HeldFor
		require.Equal(t, full, got)

		s.witness(t, "last", 11*time.Second)
		s.unless(t, s.guard, 10*time.Second)
		require.NotEqual(t, before["last"], s.HGet(ctx, s.Witness(), "last").Val())
	})
}

func TestATickThatOnlyReadsReturnsTheHoldAsItIs(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		quick := guard.New(s.Client, s.Client, s.Layout, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "quick")
		_, err := quick.Tick(ctx)
		require.NoError(t, err)
		s.witness(t, "since", 6*time.Second)
		s.witness(t, "disagreed", 6*time.Second)
		got := s.unless(t, quick, time.Minute)
		require.Equal(t, "settings", got.Reason)
		require.InDelta(t, (grace - 6*time.Second).Seconds(), got.HeldFor.Seconds(), 20)
		require.InDelta(t, 6, got.Listening.Seconds(), 5)
		require.Positive(t, got.LastHold)
	})
}

// Another's tick must not make this one miss its purpose.
func TestATickIsNotLeftOutWhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *term)
		reason string
	}{
		"nobody has ticked":                {func(t *testing.T, s *term) { require.NoError(t, s.Del(t.Context(), s.Witness()).Err()) }, "gap"},
		"the last tick lies in the future": {func(t *testing.T, s *term) { s.witness(t, "last", -time.Minute) }, "gap"},
		"the witness began in the future":  {func(t *testing.T, s *term) { s.witness(t, "since", -time.Minute) }, "gap"},
		"the witness is no hash": {func(t *testing.T, s *term) {
			require.NoError(t, s.Set(t.Context(), s.Witness(), "x", 0).Err())
		}, "gap"},
		"another GRACE was seen": {func(t *testing.T, s *term) {
			require.NoError(t, s.HSet(t.Context(), s.Witness(), "grace", "1000").Err())
		}, "settings"},
		"an owner disagreed": {func(t *testing.T, s *term) {
			require.NoError(t, s.HSet(t.Context(), s.Witness(), "grace", "0").Err())
		}, "settings"},
		"another GAP was seen": {func(t *testing.T, s *term) {
			require.NoError(t, s.HSet(t.Context(), s.Witness(), "gap", "1000").Err())
		}, "settings"},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				s := newTerm(t, w.Options, w.Prefix)
				_, err := s.guard.Tick(t.Context())
				require.NoError(t, err)
				c.change(t, s)
				got := s.unless(t, s.guard, time.Minute)
				require.Equal(t, c.reason, got.Reason)
				require.Zero(t, got.Listening)
			})
		})
	}
}

func TestARestartBetweenTwoTicksThatOnlyReadIsFoundByTheNext(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, aof...)
	s := newTerm(t, srv.Options(), "")
	s.alive(t)
	s.unless(t, s.guard, time.Minute)
	srv.Kill()
	srv.Restart()
	require.Eventually(t, func() bool { return s.Ping(t.Context()).Err() == nil }, patience, 10*time.Millisecond)
	s.unless(t, s.guard, time.Minute)
	got := s.unless(t, s.guard, time.Millisecond)
	require.Equal(t, "restarted", got.Reason)
}

func TestWhoTicksIsAContenderUntilItWithdraws(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		who := func() []string { return s.SMembers(ctx, s.Contenders()).Val() }
		a := guard.New(s.Client, s.Client, s.Layout, timing, "a")
		b := guard.New(s.Client, s.Client, s.Layout, timing, "b")
		require.NoError(t, s.Del(ctx, s.Contenders()).Err())
		_, err := a.Tick(ctx)
		require.NoError(t, err)
		s.unless(t, b, time.Minute)
		require.ElementsMatch(t, []string{"a", "b"}, who())
		require.NoError(t, a.Withdraw(ctx))
		require.Equal(t, []string{"b"}, who())
	})
}

func TestWhatCannotBeAddedToTheContendersTicksAllTheSame(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	require.NoError(t, s.Del(ctx, s.Contenders()).Err())
	require.NoError(t, s.Set(ctx, s.Contenders(), "no set", 0).Err())
	_, err := s.guard.Tick(ctx)
	require.NoError(t, err)
	_, err = s.poor(t, "poor", "-sadd").Tick(ctx)
	require.NoError(t, err)
}
