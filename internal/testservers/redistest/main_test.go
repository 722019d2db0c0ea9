package redistest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// role selects the side that a test binary started by a test plays.
const role = "REDISTEST_ROLE"

// again prepares another run of this test binary, of this one test.
func again(t *testing.T, as string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), role+"="+as), env...)
	return cmd
}

func TestMainFailsAPackageThatLeavesAGoroutine(t *testing.T) {
	t.Parallel()
	if os.Getenv(role) == "leaker" {
		go func() { select {} }()
		return
	}
	out, err := again(t, "leaker").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "goroutines are left")
	require.Contains(t, string(out), t.Name())
}

// The failures of a search for the server are errors with a remedy, never skips.
func TestTheSearchForAServer(t *testing.T) {
	for name, c := range map[string]struct {
		server string // REDIS_SERVER
		script string // what is found in the cache, if anything
		want   string // in the test's failure
	}{
		"a named server that is not there":    {server: "/nowhere/redis-server", want: "REDIS_SERVER"},
		"none on the PATH and no cache":       {want: "make redis"},
		"the cache's is found, and must run":  {script: "echo cannot load libjemalloc; exit 127", want: "cannot load libjemalloc"},
		"a named server that never was redis": {server: "/bin/false", want: "redis-server ended"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			inside := filepath.Join(root, "some", "package")
			require.NoError(t, os.MkdirAll(inside, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o600))
			if c.script != "" {
				path := filepath.Join(root, ".cache", "redis", "redis-server")
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
			}
			t.Setenv("REDIS_SERVER", c.server)
			t.Setenv("PATH", t.TempDir())
			t.Chdir(inside)

			failed := &failure{TB: t}
			done := make(chan struct{})
			go func() { // FailNow ends the goroutine
				defer close(done)
				redistest.Start(failed)
			}()
			<-done
			require.Contains(t, failed.text, c.want)
		})
	}
}

// failure is a testing.TB that keeps what it should have failed with.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }
func (f *failure) FailNow()                          { runtime.Goexit() }
