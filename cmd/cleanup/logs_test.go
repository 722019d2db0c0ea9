package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/logtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestALogNamesItsInstanceAndIsCalmWhileAnotherDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	require.NoError(t, rdb.SAdd(t.Context(), "bots:deployed", "b1").Err())
	require.NoError(t, rdb.HSet(t.Context(), "bots:state:b2", "state", "idle").Err())
	start := func(id string) *process.Process {
		return logtest.Program(t, []string{asMain + "=1"},
			"--redis-url=redis://"+server.Addr(), "--rules="+rulesFile(t, "rules:\n"+botsOfTests),
			"--instance-id="+id, "--http-addr=127.0.0.1:0", "--log-format=json",
			// settings under which a slow machine is not taken for a fault:
			"--heartbeat-interval=1s", "--heartbeat-ttl=6s", "--cleanup-interval=1s", "--cleanup-lease-ttl=6s")
	}
	dies := start("cleanup-1")
	logtest.Await(t, dies, patience, "lease acquired")
	stays := start("cleanup-2")
	logtest.Await(t, stays, patience, "instance lives")
	dies.Kill()
	logtest.Await(t, stays, patience, "lease acquired")
	logtest.Await(t, stays, patience, "pass evicted entries")
	require.NoError(t, stays.Signal(syscall.SIGTERM))
	require.Equal(t, cli.ExitOK, stays.ExitCode())

	logtest.Calm(t, dies.Log(), "cleanup-1")
	lines := logtest.Calm(t, stays.Log(), "cleanup-2")
	evicted := logtest.Has(t, lines, "pass evicted entries")
	require.Equal(t, "bots", evicted["sweep"])
	require.Equal(t, 1.0, evicted["evicted"])
	require.Equal(t, logtest.Has(t, lines, "lease acquired")["epoch"], evicted["epoch"])
	logtest.Has(t, lines, "said goodbye")
	logtest.Has(t, lines, "stopped")
}
