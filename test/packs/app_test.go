//go:build packs

package packs_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is how long a test waits for what has to happen. It is no measure of anything.
const patience = 4 * time.Minute

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, 20*time.Millisecond, what)
}

// An app is one process of an application on a library: it reads commands from its input, and
// writes an answer for each, or one that it is up.
type app struct {
	t       *testing.T
	p       *process.Process
	answers chan json.RawMessage
	done    *finished
}

// finished are the jobs that processes have run.
type finished struct {
	mu   sync.Mutex
	jobs map[string]bool
}

func newFinished() *finished { return &finished{jobs: map[string]bool{}} }

func (d *finished) all(jobs []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(jobs, func(job string) bool { return !d.jobs[job] })
}

func portOf(t *testing.T, server *redistest.Server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	return port
}

// library is the folder of a library that npm has fetched.
func library(name string) string { return filepath.Join(os.Getenv("PACKS"), name) }

// debian is a program that finds Debian's libraries. Without them the test is skipped:
// scripts/packs has said why.
func debian(t *testing.T, program string) string {
	t.Helper()
	require.NotEmpty(t, os.Getenv("PACKS"), "run make test-packs")
	path := library(filepath.Join("debian", "bin", program))
	if _, err := os.Stat(path); err != nil {
		t.Skip("the library of Debian could not be fetched")
	}
	return path
}

func startApp(t *testing.T, done *finished, env []string, args ...string) *app {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "NODE_ENV=production"), env...)
	p, err := process.Start(cmd, process.Options{Talk: true, OwnGroup: true, Log: filepath.Join(t.TempDir(), "app.log")})
	require.NoError(t, err)
	a := &app{t: t, p: p, answers: make(chan json.RawMessage, 1), done: done}
	go a.listen()
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Logf("%v wrote:\n%s", args, p.Log())
		}
	})
	return a
}

// kill ends the process with its children: one of a Celery worker would hold its connection open,
// to which Redis then gives a task that nobody runs.
func (a *app) kill() {
	_ = syscall.Kill(-a.p.PID(), syscall.SIGKILL) // fails only if it is gone already
	a.p.Kill()
}

func (a *app) listen() {
	defer close(a.answers)
	for a.p.Out.Scan() {
		var line struct {
			Op   string          `json:"op"`
			OK   json.RawMessage `json:"ok"`
			Done string          `json:"done"`
		}
		switch {
		case json.Unmarshal(a.p.Out.Bytes(), &line) != nil: // a library's own words
		case line.Op != "":
			select {
			case a.answers <- line.OK:
			default: // a worker that has lost its connection says again that it is up
			}
		default:
			a.done.mu.Lock()
			a.done.jobs[line.Done] = true
			a.done.mu.Unlock()
		}
	}
}

// up waits for a process that says so by itself.
func (a *app) up() *app {
	a.t.Helper()
	_, ok := <-a.answers
	require.True(a.t, ok, "the process ended")
	return a
}

// do sends a command, and returns the names that it answers with: of the jobs that it has added.
func (a *app) do(op string, args map[string]any) (names []string) {
	a.t.Helper()
	request := map[string]any{"op": op}
	for name, value := range args {
		request[name] = value
	}
	line, err := json.Marshal(request)
	require.NoError(a.t, err)
	_, err = fmt.Fprintf(a.p.In, "%s\n", line)
	require.NoError(a.t, err)
	answer, ok := <-a.answers
	require.True(a.t, ok, "the process ended")
	_ = json.Unmarshal(answer, &names) // or true
	return names
}
