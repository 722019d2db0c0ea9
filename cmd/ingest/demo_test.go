package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/demo"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// hasty fits into a test's time, but a busy machine can follow it: a stall of a second is not a
// gap.
var hasty = demo.Pace{
	Beat: 700 * time.Millisecond, TTL: 2800 * time.Millisecond, Interval: time.Second, Lease: 2 * time.Second,
	Frame: 400 * time.Millisecond, Minute: 4 * time.Second, Calm: 50 * time.Millisecond, Patience: 3 * time.Minute,
}

func TestTheDemoConverges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	// A user's settings for other replicas must not reach these.
	environ := append(os.Environ(), asMain+"=1", "JANITOR_DRY_RUN=true", "HEARTBEAT_TTL=nonsense", "REDIS_URL=redis://127.0.0.1:1")
	require.NoError(t, playDemo(t.Context(), demo.Config{Devices: 60, Seed: 1, Out: &out, Pace: hasty}, environ), out.String())
	for _, want := range []string{
		"3 replicas serve", "all 60 devices routable", "KILLED the leader replica-", "handed back, taken over or swept", "ADDED replica-4",
		"STOPPED the leader replica-", "CONVERGED: 60 entries", "every one is in the stream",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "logs are in")
}

func TestADemoThatIsKilledTakesItsReplicasAlong(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // only Linux has a death signal; see package demo
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
