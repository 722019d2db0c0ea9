package harness

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

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Replica is a process of the real program. Its methods are for the scenario's goroutine.
type Replica struct {
	*process.Process
	t          *testing.T
	ID         string
	HTTP       string // as bound
	Devices    string
	Born       time.Time
	Proxy      *Proxy     // to Redis
	Failpoints Failpoints // can stop it
}

// GivenIngest names a program that is not built here.
const GivenIngest = "ROLLCALL_INGEST"

// BuildIngest builds the gateway, unless a program is given.
func BuildIngest(t *testing.T) string {
	if binary := os.Getenv(GivenIngest); binary != "" {
		return binary
	}
	return BuildOf(t, "ingest")
}

// BuildOf builds any program in cmd with the failpoints, and with the race detector if this test
// has it.
func BuildOf(t *testing.T, program string, flags ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), program)
	args := append([]string{"build", "-tags", "failpoints", "-o", binary},
		append(redistest.Raced(), flags...)...)
	args = append(args, "github.com/rollcall-redis/rollcall/cmd/"+program)
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// Launch passes on these settings alone, and returns at once.
func Launch(t *testing.T, binary, id string, p *Proxy, settings map[string]string) *Replica {
	r := &Replica{t: t, ID: id, Born: time.Now(), Proxy: p, Failpoints: Failpoints{t.TempDir()}}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "INSTANCE_ID=" + id,
		"REDIS_URL=redis://" + p.login + p.Addr(), failpoint.Folder + "=" + r.Failpoints.dir}
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

// Ready waits for sockets and the first heartbeat.
func (r *Replica) Ready() {
	r.t.Helper()
	Eventually(r.t, "replica "+r.ID+" is ready", func() bool {
		if !r.Runs() {
			return true // reported below
		}
		r.HTTP, r.Devices = r.Said("serving HTTP", "addr"), r.Said("listening for devices", "addr")
		if r.HTTP == "" || r.Devices == "" {
			return false
		}
		_, err := r.Get("/readyz")
		return err == nil
	})
	require.True(r.t, r.Runs(), "replica %s ended: %s", r.ID, r.Log())
}

// Stop is a machine's long pause (SIGSTOP).
func (r *Replica) Stop() { require.NoError(r.t, r.Process.Stop()) }

// Cont ends Stop.
func (r *Replica) Cont() { require.NoError(r.t, r.Process.Cont()) }

// Term asks for a graceful end.
func (r *Replica) Term() { require.NoError(r.t, r.Signal(syscall.SIGTERM)) }

// Exit returns the exit status.
func (r *Replica) Exit() int {
	r.t.Helper()
	select {
	case <-r.Done():
	case <-time.After(Patience):
		require.Fail(r.t, "replica does not end", r.ID)
	}
	return r.ExitCode()
}

// Asker keeps no connection to a replica that is killed.
var Asker = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get fails unless the status is 200.
func (r *Replica) Get(path string) ([]byte, error) {
	answer, err := Asker.Get("http://" + r.HTTP + path)
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

// Status is for scenarios, not for the judge.
type Status struct {
	Instance string          `json:"instance"`
	Ready    bool            `json:"ready"`
	Registry registry.Status `json:"registry"`
	Janitor  janitor.Status  `json:"janitor"`
}

// Status asks the replica.
func (r *Replica) Status() (s Status, err error) {
	body, err := r.Get("/api/v1/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// Metric is Sum of /metrics.
func (r *Replica) Metric(name string) (float64, error) {
	body, err := r.Get("/metrics")
	if err != nil {
		return 0, err
	}
	return Sum(body, name)
}

// Sum adds up a name's series in Prometheus' text format. A name with labels is one series.
func Sum(text []byte, name string) (total float64, err error) {
	for line := range bytes.Lines(text) {
		text := string(bytes.TrimSpace(line))
		space := strings.LastIndexByte(text, ' ') // values of labels may contain spaces too
		series := text[:max(0, space)]
		if base, _, _ := strings.Cut(series, "{"); space < 0 || base != name && series != name {
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
