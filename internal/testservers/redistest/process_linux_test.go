package redistest_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAServerDiesWithATestBinaryThatIsKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv(role) == "killed" {
		fmt.Println("pid", redistest.Start(t).PID())
		fmt.Println("pid", redistest.Shared(t).PID())
		<-t.Context().Done()
	}
	cmd := again(t, "killed", "TMPDIR="+t.TempDir()) // its folders outlive it
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	require.Len(t, pids, 2)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for _, pid := range pids {
		require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 5*time.Millisecond)
	}
}

// gone reports whether a process has ended; a container's init may be slow to reap it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
