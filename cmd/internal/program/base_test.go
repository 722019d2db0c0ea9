package program

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func baseOf(args ...string) (*Base, error) {
	b := &Base{}
	c := &cli.Command{Name: "program", Settings: b.Table()}
	return b, c.Load(append([]string{"--redis-url=redis://h:1"}, args...), nil)
}

func TestASecretOnTheCommandLineIsWarnedOf(t *testing.T) {
	t.Parallel()
	calltest.Tells(t, func(args ...string) (exposed int, said string) {
		var b Base
		c := &cli.Command{Name: "greet", Settings: b.Table()}
		require.NoError(t, c.Load(args, []string{"REDIS_URL=redis://ann:secret@h:1"}), args)
		var log bytes.Buffer
		run := Serving(c, &b, func(context.Context, *slog.Logger) error { return nil })
		require.NoError(t, run(t.Context(), io.Discard, &log))
		require.NotContains(t, log.String(), "0123456789abcdef")
		return strings.Count(log.String(), "on the command line"), log.String()
	}, `
		1 --admin-token=0123456789abcdef
		1 --redis-url=redis://ann:secret@h:1
		1 --redis-url=redis://h:1?master_name=m&password=secret
		1 --redis-url=redis://:secret@h:1
		0 --redis-url=redis://ann@h:1
		0 --redis-url=embedded
		0 --instance-id=a`)
}

func TestTokensThatCannotBeRightAreRefusedByName(t *testing.T) {
	t.Parallel()
	calltest.Tells(t, func(args ...string) (int, string) {
		_, err := baseOf(args...)
		var faults cli.Faults
		require.ErrorAs(t, err, &faults)
		require.NotContains(t, err.Error(), "geheim")
		return len(faults), err.Error()
	}, `
		1 --admin-token=0123456789abcdef --admin-token-file=$GOOD ~ ADMIN_TOKEN and ADMIN_TOKEN_FILE: expected one of the two
		1 --admin-token-file=$SHORT ~ --admin-token-file: expected the path of .* can be used \(at least 16 characters,
		1 --admin-token-file=$THREE ~ expected a token, or two lines of one each`,
		"$GOOD", fileOf(t, "token", "0123456789abcdef"), "$SHORT", fileOf(t, "short", "geheim"),
		"$THREE", fileOf(t, "three", strings.Repeat("0123456789abcdef\n", 3)))
}

func TestTheTokenIsReadAgainAndAShortOneIsRefused(t *testing.T) {
	t.Parallel()
	path := fileOf(t, "token", "0123456789-first\n")
	b, err := baseOf("--admin-token-file=" + path)
	require.NoError(t, err)
	require.Equal(t, cli.Secret("0123456789-first"), b.AdminToken)
	tokens, files, err := b.Tokens()
	require.NoError(t, err)
	var log process.Buffer
	w := reload.New(slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry(), files...)

	isOne := func(token string) bool { return slices.Contains(tokens(), token) }
	write := func(text string, until func() bool) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		waittest.Until(t, 5*time.Millisecond, until, text)
	}
	require.True(t, isOne("0123456789-first"))
	write("short", func() bool { w.Status(); return strings.Contains(log.String(), "the former value stands") })
	require.Contains(t, log.String(), "at least 16 characters")
	require.True(t, isOne("0123456789-first"))
	require.False(t, isOne("short"))
	write("0123456789-second", func() bool { return isOne("0123456789-second") })
	require.False(t, isOne("0123456789-first"))
	// Both count while clients change over.
	write("0123456789-third\r\n0123456789-second\n", func() bool { return isOne("0123456789-third") })
	require.True(t, isOne("0123456789-second"))
	require.False(t, isOne("0123456789-third\r\n0123456789-second"))
	require.NotContains(t, log.String(), "0123456789")
}
