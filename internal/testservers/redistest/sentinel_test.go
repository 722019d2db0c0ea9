package redistest_test

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestSentinelsNameAReplicaWhenTheMasterIsGone(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	sentinels := redistest.StartSentinels(t, 3, master.Addr(), 1)
	require.Equal(t, master.Addr(), redistest.SentinelMaster(t, sentinels[0]))
	master.Kill()
	for _, s := range sentinels {
		require.Eventually(t, func() bool {
			return redistest.SentinelMaster(t, s) == replica.Addr()
		}, time.Minute, 10*time.Millisecond)
	}
}

func TestTheServersOwnCommandLineToolRuns(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(redistest.Shared(t).Addr())
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), redistest.CLI(t), "-p", port, "PING").Output()
	require.NoError(t, err)
	require.Equal(t, "PONG\n", string(out))
}
