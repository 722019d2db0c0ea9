package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/web"
)

// replica is one process of the real program. Its methods are for the scenario's goroutine.
type replica struct {
	*process.Process
	t       *testing.T
	id      string
	http    string // addresses as bound
	devices string
	born    time.Time
	proxy   *redisProxy // its way to Redis
	points  failpoints  // at which it can be told to stop
}

// givenIngest names a program that is to be used as it is, in place of one built here.
const givenIngest = "ROLLCALL_INGEST"

// buildIngest builds the program, with the race detector, since the scenarios are what shakes it most.
func buildIngest(t *testing.T) string {
	if binary := os.Getenv(givenIngest); binary != "" {
		return binary
	}
	return goBuild(t, "-race")
}

// goBuild builds the program with its failpoints.
func goBuild(t *testing.T, flags ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ingest")
	args := append([]string{"build", "-tags", "failpoints", "-o", binary}, flags...)
	out, err := exec.CommandContext(t.Context(), "go", append(args, "github.com/rollcall-redis/rollcall/cmd/ingest")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// launch starts a process with settings from its environment alone. It does not wait for anything.
func launch(t *testing.T, binary, id string, line *redisProxy, settings map[string]string) *replica {
	r := &replica{t: t, id: id, born: time.Now(), proxy: line, points: newFailpoints(t)}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "INSTANCE_ID=" + id,
		"REDIS_URL=redis://" + line.login + line.Addr()}
	folder, points := r.points.setting()
	cmd.Env = append(cmd.Env, folder+"="+points)
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var err error
	r.Process, err = process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), id+".log")})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Kill()
		text := r.Log()
		require.NotContains(t, text, "WARNING: DATA RACE", "%s", text)
		if t.Failed() {
			t.Logf("replica %s, pid %d, end of its log:\n%s", id, r.PID(), text[max(0, len(text)-8<<10):])
		}
	})
	return r
}

// ready waits until the process serves devices and its first heartbeat has landed.
func (r *replica) ready() {
	r.t.Helper()
	eventually(r.t, "replica "+r.id+" is ready", func() bool {
		if !r.Runs() {
			return true // told below
		}
		r.http, r.devices = r.Said("serving HTTP", "addr"), r.Said("listening for devices", "addr")
		if r.http == "" || r.devices == "" {
			return false
		}
		_, err := r.get("/readyz")
		return err == nil
	})
	require.True(r.t, r.Runs(), "replica %s ended: %s", r.id, r.Log())
}

func (r *replica) ended() bool { return !r.Runs() }

// stop freezes the process as a machine's long pause does (SIGSTOP), cont lets it go on.
func (r *replica) stop() { require.NoError(r.t, r.Process.Stop()) }
func (r *replica) cont() { require.NoError(r.t, r.Process.Cont()) }

// term asks for a graceful end (SIGTERM).
func (r *replica) term() { require.NoError(r.t, r.Signal(syscall.SIGTERM)) }

// exit waits for the end and returns the exit status.
func (r *replica) exit() int {
	r.t.Helper()
	select {
	case <-r.Done():
	case <-time.After(patience):
		require.Fail(r.t, "replica does not end", r.id)
	}
	return r.ExitCode()
}

// asker keeps no connection, so that none is left behind in a replica that is killed.
var asker = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (r *replica) get(path string) ([]byte, error) {
	answer, err := asker.Get("http://" + r.http + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return body, err
}

// status is what the replica says of itself; it is used to know when to act, never to judge.
func (r *replica) status() (s web.Status, err error) {
	body, err := r.get("/api/v1/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// metric is the sum over all series of a name.
func (r *replica) metric(name string) (float64, error) {
	body, err := r.get("/metrics")
	if err != nil {
		return 0, err
	}
	return sum(body, name)
}

// sum adds up the series of a name in the text format of Prometheus.
func sum(text []byte, name string) (total float64, err error) {
	for line := range bytes.Lines(text) {
		text := string(bytes.TrimSpace(line))
		space := strings.LastIndexByte(text, ' ') // values of labels may have some too
		if base, _, _ := strings.Cut(text[:max(0, space)], "{"); space < 0 || base != name {
			continue
		}
		v, err := strconv.ParseFloat(text[space+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		total += v
	}
	return total, nil
}

func TestSumAddsUpTheSeriesOfOneName(t *testing.T) {
	t.Parallel()
	total, err := sum([]byte("# HELP a b\na{x=\"1\"} 2\na{x=\"2 {\"} 3.5\nab 7\na 1\n"), "a")
	require.NoError(t, err)
	require.InDelta(t, 6.5, total, 0)
	_, err = sum([]byte("a x\n"), "a")
	require.Error(t, err)
}
