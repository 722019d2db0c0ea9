package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/logtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/service"
)

// aRule of which nothing is to be complained.
const aRule = `rules:
- name: bots
  category: orphanedBotStates
  delete: true
  keys: "bots:state:{bot}"
  keep_if:
  - member: {set: "bots:deployed", of: "{bot}"}
  unless_lost:
  - exists: "bots:deployed"
  grace: 1s
  bin: 24h
`

func TestALogNamesItsInstanceAndIsCalmWhileAnotherDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	require.NoError(t, rdb.SAdd(t.Context(), "bots:deployed", "b1").Err())
	require.NoError(t, rdb.HSet(t.Context(), "bots:state:b2", "state", "idle").Err())
	start := func(id string) *process.Process {
		cmd := exec.Command(os.Args[0], "--redis-url=redis://"+server.Addr(), "--rules="+rulesFile(t, aRule),
			"--instance-id="+id,
			// settings under which a slow machine is not taken for a fault:
			"--http-addr=127.0.0.1:0", "--log-format=json",
			"--heartbeat-interval=1s", "--heartbeat-ttl=6s", "--cleanup-interval=1s",
			"--cleanup-lease-ttl=6s")
		cmd.Env = []string{asMain + "=1", "GOCOVERDIR=" + t.TempDir()}
		child, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "log")})
		require.NoError(t, err)
		t.Cleanup(child.Kill)
		return child
	}
	logged := func(p *process.Process, message string) {
		require.Eventually(t, func() bool { return strings.Contains(p.Log(), `"msg":"`+message+`"`) },
			patience, 5*time.Millisecond, message)
	}
	dies := start("cleanup-1")
	logged(dies, "lease acquired")
	stays := start("cleanup-2")
	logged(stays, "instance lives")
	dies.Kill()
	logged(stays, "lease acquired")
	logged(stays, "pass evicted entries")
	require.NoError(t, stays.Signal(syscall.SIGTERM))
	require.Equal(t, service.ExitOK, stays.ExitCode())

	logtest.Calm(t, dies.Log(), "cleanup-1")
	lines := logtest.Calm(t, stays.Log(), "cleanup-2")
	evicted := logtest.Has(t, lines, "pass evicted entries")
	require.Equal(t, "bots", evicted["sweep"])
	require.Equal(t, 1.0, evicted["evicted"])
	require.Equal(t, logtest.Has(t, lines, "lease acquired")["epoch"], evicted["epoch"])
	logtest.Has(t, lines, "stopped")
}
