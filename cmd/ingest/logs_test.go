package main

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/logtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// calm settings keep a slow machine from being taken for a fault.
var calm = []string{"--heartbeat-interval=1s", "--heartbeat-ttl=6s", "--janitor-interval=1s",
	"--janitor-lease-ttl=6s"}

// posts requests a change from a replica.
func posts(t *testing.T, p *process.Process, request string) {
	t.Helper()
	code, body := asking(t, p).Post("/api/v1/"+request, adminToken)
	require.Equal(t, http.StatusOK, code, body)
}

func TestALogNamesItsInstanceAndIsCalmWhileOthersComeDieAndGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	token := filepath.Join(t.TempDir(), "token") // a token in a flag causes a warning
	require.NoError(t, os.WriteFile(token, []byte(adminToken), 0o600))
	args := func(id string) []string {
		return on(server, append(calm, "--instance-id="+id, "--admin-token-file="+token)...)
	}
	leader := servingChild(t, args("ingest-1")...)
	logtest.Await(t, leader, patience, "lease acquired")
	other, dies := servingChild(t, args("ingest-2")...), servingChild(t, args("ingest-3")...)
	for i, p := range []*process.Process{leader, other, dies, dies} {
		asking(t, p).connect([]string{imei, "352093081452251", "350000000000006", "350000000000014"}[i])
	}
	dies.Kill()
	logtest.Await(t, leader, patience, "pass evicted entries")
	posts(t, leader, "sweep?dry_run=true&who=ann&owner=ingest-3")
	posts(t, other, "pause?who=ann&why=redis+upgrade&for=1h")
	logtest.Await(t, leader, patience, "sweeping is paused")
	posts(t, other, "resume?who=ben")
	logtest.Await(t, leader, patience, "sweeping is no longer paused")
	posts(t, leader, "resign?who=ann")
	logtest.Await(t, other, patience, "lease acquired")
	for _, p := range []*process.Process{leader, other} {
		require.NoError(t, p.Signal(syscall.SIGTERM))
		require.Equal(t, exitOK, p.ExitCode())
	}

	lines := logtest.Calm(t, leader.Log(), "ingest-1")
	epoch := logtest.Has(t, lines, "lease acquired")["epoch"]
	require.NotZero(t, epoch)
	var evicted float64
	for _, line := range lines {
		if line["msg"] == "pass evicted entries" {
			from := line["from"].(map[string]any)
			require.Equal(t, line["evicted"], from["ingest-3"], "%v", line)
			require.Equal(t, epoch, line["epoch"])
			evicted += line["evicted"].(float64)
		}
	}
	require.Equal(t, 2.0, evicted)
	require.Equal(t, "redis upgrade", logtest.Has(t, lines, "sweeping is paused")["why"])
	require.Equal(t, "ann", logtest.Has(t, lines, "admin request done")["who"])
	require.Contains(t, logtest.Has(t, lines, "lease released")["cause"], "resigned")

	lines = logtest.Calm(t, other.Log(), "ingest-2")
	require.Equal(t, "redis upgrade", logtest.Has(t, lines, "sweeping paused")["why"])
	logtest.Has(t, lines, "said goodbye")
	logtest.Has(t, lines, "stopped")
	logtest.Calm(t, dies.Log(), "ingest-3")
}
