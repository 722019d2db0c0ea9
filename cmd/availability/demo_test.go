package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/demo"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/process"
)

// hasty is fast enough for a test, and slow enough for a busy machine: a stall of a second is not
// a gap.
var hasty = demo.Pace{
	Stale: 3 * time.Second, Ping: 700 * time.Millisecond, Beat: 700 * time.Millisecond, TTL: 2800 * time.Millisecond,
	Lease: 2 * time.Second, Compare: 2 * time.Second, Calm: 50 * time.Millisecond,
}

// playing is a demo whose replicas are this test's binary.
func playing(ctx context.Context, t *testing.T, out *process.Buffer) error {
	t.Helper()
	cfg := demo.Config{
		Postgres: os.Getenv("POSTGRES_BIN"), RedisServer: os.Getenv("REDIS_SERVER"), Out: out, Mitras: 120, Seed: 1, Pace: hasty,
	}
	require.NotEmpty(t, cfg.Postgres, "set POSTGRES_BIN to what scripts/postgres prints")
	require.NotEmpty(t, cfg.RedisServer, "set REDIS_SERVER to what scripts/redis prints")
	// The user's settings for other replicas must not reach these.
	environ := append(os.Environ(), asMain+"=1", "GOCOVERDIR="+t.TempDir(), "HEARTBEAT_TTL=nonsense", "REDIS_URL=embedded")
	return playDemo(ctx, cfg, environ)
}

func TestTheDemoEndsWithAllInAgreement(t *testing.T) {
	var out process.Buffer
	require.NoError(t, playing(t.Context(), t, &out), out.String())
	for _, want := range []string{
		"3 replicas serve", "KILLED the leader replica-", "all 10 are offline in Postgres and in the mirror", "FLUSHALL", "seeded ",
		"Postgres STOPPED", "sessions are accepted again", "AGREED: ", "nobody who pinged",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "logs are in")
}

func TestADemoThatIsInterruptedLeavesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out process.Buffer
	ended := make(chan error, 1)
	folder, err := os.MkdirTemp("", "demo-") // a short name, that all can read
	require.NoError(t, err)
	defer os.RemoveAll(folder)
	require.NoError(t, os.Chmod(folder, 0o755))
	t.Setenv("TMPDIR", folder)
	go func() { ended <- playing(ctx, t, &out) }()
	require.Eventually(t, func() bool {
		return len(ended) > 0 || strings.Contains(out.String(), "3 replicas serve")
	}, patience, 5*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled)
	left, err := filepath.Glob(filepath.Join(folder, "rollcall-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTheDemoSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	code, _, said := says(t, "demo", "--mitras=99")
	require.Equal(t, cli.ExitUsage, code)
	for _, want := range []string{"POSTGRES_BIN: expected", "REDIS_SERVER: expected", "--mitras: expected a whole number from 100"} {
		require.Contains(t, said, want)
	}
	var out bytes.Buffer
	err := playDemo(t.Context(), demo.Config{Postgres: "/nowhere", RedisServer: "/nowhere", Out: &out}, os.Environ())
	require.ErrorContains(t, err, "initdb")
	require.Contains(t, out.String(), "all logs are in ")
	_, folder, _ := strings.Cut(strings.TrimSpace(out.String()), "all logs are in ")
	require.NoError(t, os.RemoveAll(folder))
}
