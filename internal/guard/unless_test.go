package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// unless ticks like a reserve: anybody's tick within d is enough.
func (s *term) unless(g *guard.Guard, d time.Duration) guard.Witness {
	s.Helper()
	pipe := s.Pipeline()
	tick := g.TickIn(s.Context(), pipe, d)
	_, _ = pipe.Exec(s.Context()) // NOSCRIPT, the first time
	w, err := tick()
	require.NoError(s, err)
	return w
}

func TestATickBesideAYoungerOneOnlyReads(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		full := s.tick()
		s.witness("last", 9*time.Second)
		before := s.HGetAll(ctx, s.Witness()).Val()
		got := s.unless(s.guard, 10*time.Second)
		require.Equal(s, before, s.HGetAll(ctx, s.Witness()).Val())
		got.Now, got.Listening, got.HeldFor = full.Now, full.Listening, full.HeldFor
		require.Equal(s, full, got)

		s.witness("last", 11*time.Second)
		s.unless(s.guard, 10*time.Second)
		require.NotEqual(s, before["last"], s.HGet(ctx, s.Witness(), "last").Val())
	})
}

// Another's tick must not make this one miss its purpose.
func TestATickIsNotLeftOutWhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *term)
		reason string
	}{
		"nobody has ticked":                {func(s *term) { s.do("DEL", s.Witness()) }, "gap"},
		"the last tick lies in the future": {func(s *term) { s.witness("last", -time.Minute) }, "gap"},
		"the witness began in the future":  {func(s *term) { s.witness("since", -time.Minute) }, "gap"},
		"the witness is no hash": {func(s *term) {
			s.do("SET", s.Witness(), "x")
		}, "gap"},
		"another GRACE was seen": {func(s *term) {
			s.do("HSET", s.Witness(), "grace", "1000")
		}, "settings"},
		"an owner disagreed": {func(s *term) {
			s.do("HSET", s.Witness(), "grace", "0")
		}, "settings"},
		"another GAP was seen": {func(s *term) {
			s.do("HSET", s.Witness(), "gap", "1000")
		}, "settings"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(s *term) {
				s.tick()
				c.change(s)
				got := s.unless(s.guard, time.Minute)
				require.Equal(s, c.reason, got.Reason)
				require.Zero(s, got.Listening)
			})
		})
	}
}

func TestARestartBetweenTwoTicksThatOnlyReadIsFoundByTheNext(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, aof...)
	s := newTerm(t, srv.Options(), "")
	s.alive()
	s.unless(s.guard, time.Minute)
	srv.Kill()
	srv.Restart()
	require.Eventually(t, func() bool { return s.Ping(t.Context()).Err() == nil }, patience, 10*time.Millisecond)
	s.unless(s.guard, time.Minute)
	got := s.unless(s.guard, time.Millisecond)
	require.Equal(t, "restarted", got.Reason)
}

func TestWhoTicksIsAContenderUntilItWithdraws(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		who := func() []string { return s.SMembers(ctx, s.Contenders()).Val() }
		a := guard.New(s.Client, s.Client, s.Layout, timing, "a")
		b := guard.New(s.Client, s.Client, s.Layout, timing, "b")
		s.do("DEL", s.Contenders())
		_, err := a.Tick(ctx)
		require.NoError(s, err)
		s.unless(b, time.Minute)
		require.ElementsMatch(s, []string{"a", "b"}, who())
		require.NoError(s, a.Withdraw(ctx))
		require.Equal(s, []string{"b"}, who())
	})
}

func TestWhatCannotBeAddedToTheContendersTicksAllTheSame(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	s.do("DEL", s.Contenders())
	s.do("SET", s.Contenders(), "no set")
	s.tick()
	_, err := s.poor("poor", "-sadd").Tick(ctx)
	require.NoError(t, err)
}
