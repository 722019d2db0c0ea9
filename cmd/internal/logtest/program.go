package logtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
)

// Program starts the test binary anew, as the program that env, its whole environment, makes of it.
func Program(t testing.TB, env []string, args ...string) *process.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"GOCOVERDIR=" + t.TempDir()}, env...)
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// Await waits for a message in a program's log.
func Await(t testing.TB, p *process.Process, patience time.Duration, message string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), `"msg":"`+message+`"`) },
		patience, 5*time.Millisecond, message)
}
