package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestASimulationShowsWhatTheWorkforceDoes(t *testing.T) {
	s := stores{t, redistest.Start(t), pgtest.Database(t)} // beside nobody: it counts what is done in a time
	p := s.serving()
	code, out, said := says(t, "simulate", "--targets=http://"+p.HTTP+"/", "--database-url="+s.db.URL,
		"--jwt-hs256-secret="+secret, "--redis-url=redis://"+s.server.Addr(), "--mitras=20", "--interval=200ms", "--sessions=5",
		"--session-lasts=1s", "--polls=20", "--rest=0.05", "--duration=12s", "--seed=1")
	require.Equal(t, cli.ExitOK, code, said)
	require.Contains(t, out, "simulating 20 mitras who ping every 200ms, at http://"+p.HTTP+"; seed 1\n")
	require.Regexp(t, `(?m)^ +1[0-9]s  online: apps \d+, mirror \d+, Postgres \d+  dead \d+  heartbeats/s \d+`, out)
	require.Regexp(t, `in all: .* sessions accepted [1-9].*, ended [1-9].* valkey [1-9]`, out)
	require.NotContains(t, out, "failed")
}

func TestASimulationThatNobodyAnswersFails(t *testing.T) {
	db := pgtest.Database(t)
	code, out, said := says(t, "simulate", "--targets=http://127.0.0.1:1", "--database-url="+db.URL,
		"--jwt-hs256-secret="+secret, "--mitras=2", "--interval=10ms", "--duration=1s")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "nobody could go online")
	require.Contains(t, out, "  failed ")
}

func TestASimulationSaysWhatItNeedsAndRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	code, _, said := says(t, "simulate", "--database-url=mysql://u:hidden@h/d", "--jwt-hs256-secret=hidden",
		"--redis-url=embedded", "--targets=localhost:80", "--polls=-1", "--mitras=0", "--die=2")
	require.Equal(t, cli.ExitUsage, code)
	for _, want := range []string{
		"--database-url: expected a URL such as postgres://", "--jwt-hs256-secret: expected at least", "the replicas' Redis",
		"--targets: expected http://host:port", "--polls: expected a number from 0", "--mitras: expected", "--die: expected",
	} {
		require.Contains(t, said, want)
	}
	require.NotContains(t, said, "hidden")
}
