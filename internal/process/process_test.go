package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o process.Options, script string) *process.Process {
	t.Helper()
	p, err := process.Start(exec.Command("sh", "-c", script), o)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func TestAChildsLogAndStatusAreRead(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("of a former life"), 0o600))
	p := start(t, process.Options{Log: log}, `echo '{"msg":"serving","addr":"a:1","n":2}'; echo no JSON >&2; exit 3`)
	require.Equal(t, 3, p.ExitCode())
	require.False(t, p.Runs())
	require.Equal(t, "{\"msg\":\"serving\",\"addr\":\"a:1\",\"n\":2}\nno JSON\n", p.Log())
	require.Equal(t, "a:1", p.Said("serving", "addr"))
	require.Equal(t, "2", p.Said("serving", "n"))
	require.Empty(t, p.Said("stopped", "addr"))
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
}

func TestAChildReadsItsInputAndItsOutputIsReadToTheEnd(t *testing.T) {
	t.Parallel()
	p := start(t, process.Options{Talk: true}, `read line; echo "$line, indeed"; echo bye`)
	_, err := fmt.Fprintln(p.In, "so")
	require.NoError(t, err)
	require.Zero(t, p.ExitCode())
	require.True(t, p.Out.Scan())
	require.Equal(t, "so, indeed", p.Out.Text())
	require.True(t, p.Out.Scan())
	require.Equal(t, "bye", p.Out.Text())
	require.False(t, p.Out.Scan())
}

func TestAStoppedChildRunsAndCanBeKilled(t *testing.T) {
	t.Parallel()
	p := start(t, process.Options{}, "exec sleep 1000")
	require.NoError(t, p.Stop())
	require.True(t, p.Stopped())
	require.True(t, p.Runs())
	require.NoError(t, p.Cont())
	require.Eventually(t, func() bool { return !p.Stopped() }, time.Minute, time.Millisecond)
	require.NoError(t, p.Stop())
	p.Kill()
	require.Equal(t, -1, p.ExitCode())
	p.Kill() // nothing to end
}

func TestWhatCannotBeStartedIsAnError(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere", "x")
	_, err := process.Start(exec.Command(nowhere), process.Options{Talk: true})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = process.Start(exec.Command("true"), process.Options{Log: nowhere})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// asParent makes this test's binary a parent that starts a child and is then killed.
const asParent = "ROLLCALL_TEST_AS_PARENT"

func TestAChildDiesWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv(asParent) != "" {
		p := start(t, process.Options{OwnGroup: true}, "exec sleep 1000")
		fmt.Println(p.PID())
		<-p.Done()
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // only Linux has a death signal
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asParent+"=1")
	parent, err := process.Start(cmd, process.Options{Talk: true})
	require.NoError(t, err)
	t.Cleanup(parent.Kill)
	require.True(t, parent.Out.Scan())
	child := parent.Out.Text()
	parent.Kill()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // its parent may not have waited for it yet
	}, time.Minute, time.Millisecond)
}
