package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// hasty fits into a test's time, but a busy machine can follow it: a stall of a second is not a
// gap.
var hasty = pace{
	beat: 700 * time.Millisecond, ttl: 2800 * time.Millisecond, interval: time.Second, lease: 2 * time.Second,
	frame: 400 * time.Millisecond, minute: 4 * time.Second, calm: 50 * time.Millisecond, patience: 3 * time.Minute,
}

func TestTheDemoConverges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	// A user's settings for other replicas must not reach these.
	environ := append(os.Environ(), asMain+"=1", "JANITOR_DRY_RUN=true", "HEARTBEAT_TTL=nonsense", "REDIS_URL=redis://127.0.0.1:1")
	command, err := cli.Itself(new(settings).table(), environ)
	require.NoError(t, err)
	d := &demo{devices: 60, seed: 1, out: &out, pace: hasty, command: command}
	require.NoError(t, d.run(t.Context()), out.String())
	for _, want := range []string{
		"3 replicas serve", "all 60 devices routable", "KILLED the leader replica-", "handed back, taken over or swept", "ADDED replica-4",
		"STOPPED the leader replica-", "CONVERGED: 60 entries", "every one is in the stream",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "logs are in")
}

func TestNothingButTheTruthIsConverged(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(s *state, truth map[string]string){
		"": func(*state, map[string]string) {},
		`1 has its socket at "a", its entry names ""`: func(s *state, _ map[string]string) { delete(s.entries, "1") },
		`its entry names "b"`:                         func(s *state, _ map[string]string) { s.entries["1"] = "b" },
		"an entry of 4 names a":                       func(s *state, _ map[string]string) { s.entries["4"] = "a" },
		"1 of 2 devices are connected":                func(_ *state, truth map[string]string) { delete(truth, "2") },
		"b has no heartbeat":                          func(s *state, _ map[string]string) { s.alive["b"] = false },
		`2 has its socket at ""`:                      func(_ *state, truth map[string]string) { truth["2"] = "of old" },
	} {
		d := &demo{devices: 2, all: []*demoReplica{
			{id: "a", devices: "at a"}, {id: "b", devices: "at b"}, {id: "old", devices: "of old", leaving: true},
		}}
		s := &state{entries: map[string]string{"1": "a", "2": "b"}, alive: map[string]bool{"a": true, "b": true}}
		truth := map[string]string{"1": "at a", "2": "at b"}
		spoil(s, truth)
		found := d.differences(s, truth)
		require.Equal(t, want == "", len(found) == 0, found)
		require.Contains(t, strings.Join(found, "; "), want)
	}
}

func TestAReplicaThatCannotServeEndsTheDemo(t *testing.T) {
	t.Parallel()
	for want, argv := range map[string][]string{
		"start replica-1":                        {"/nonexistent/ingest"},
		"replica-1 has ended: what is wrong":     {"sh", "-c", "echo what is wrong >&2"},
		"in vain for replica-1 to serve devices": {"sleep", "1000"},
	} {
		d := &demo{devices: 5, out: t.Output(), pace: leisurely}
		d.command = func(...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
		if argv[0] == "sleep" {
			d.patience = time.Nanosecond
		}
		require.ErrorContains(t, d.run(t.Context()), want)
	}
}

func TestADemoThatIsKilledTakesItsReplicasAlong(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // only Linux has a death signal; see package process
	}
	temp := t.TempDir()
	p := child(t, []string{"TMPDIR=" + temp}, "demo", "--devices=5")
	var replicas []string // before the demo kills one
	waittest.Until(t, 5*time.Millisecond, func() bool { replicas = children(t, p.PID()); return len(replicas) == 3 })
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), "3 replicas serve") }, patience, 5*time.Millisecond)
	logs, err := filepath.Glob(filepath.Join(temp, "rollcall-demo-*", "*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 3)
	p.Kill()
	require.Eventually(t, func() bool {
		for _, pid := range replicas {
			// It is gone, or dead and not yet reaped by its new parent.
			if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func TestDemoSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	for line, want := range map[string]string{"--devices 2": "3 to 5000", "--nope": "nope", "stray": "flags only"} {
		stderr.Reset()
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"demo"}, strings.Fields(line)...), nil, &stdout, &stderr))
		require.Contains(t, stderr.String(), want)
	}
	require.Empty(t, stdout.String())
	require.Equal(t, exitOK, run(t.Context(), []string{"demo", "-h"}, nil, &stdout, &stderr))
	require.Contains(t, stdout.String(), "devices")
}
