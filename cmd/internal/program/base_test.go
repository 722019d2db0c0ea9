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
	for flag, exposed := range map[string]bool{
		"--admin-token=0123456789abcdef": true, "--redis-url=redis://ann:secret@h:1": true,
		"--redis-url=redis://h:1?master_name=m&password=secret": true, "--redis-url=redis://:secret@h:1": true,
		"--redis-url=redis://ann@h:1": false, "--redis-url=embedded": false, "--instance-id=a": false,
	} {
		var b Base
		c := &cli.Command{Name: "greet", Settings: b.Table()}
		require.NoError(t, c.Load([]string{flag}, []string{"REDIS_URL=redis://ann:secret@h:1"}), flag)
		var log bytes.Buffer
		run := Serving(c, &b, func(context.Context, *slog.Logger) error { return nil })
		require.NoError(t, run(t.Context(), io.Discard, &log))
		require.Equal(t, exposed, strings.Contains(log.String(), "on the command line"), flag)
		require.NotContains(t, log.String(), "0123456789abcdef")
	}
}

func TestTokensThatCannotBeRightAreRefusedByName(t *testing.T) {
	t.Parallel()
	for wants, args := range map[string][]string{
		"ADMIN_TOKEN and ADMIN_TOKEN_FILE: expected one of the two, got both":                       {"--admin-token=0123456789abcdef", "--admin-token-file=" + fileOf(t, "token", "0123456789abcdef")},
		"--admin-token-file: expected the path of a file that can be used (at least 16 characters,": {"--admin-token-file=" + fileOf(t, "short", "geheim")},
		"expected a token, or two lines of one each":                                                {"--admin-token-file=" + fileOf(t, "three", strings.Repeat("0123456789abcdef\n", 3))},
	} {
		_, err := baseOf(args...)
		require.ErrorContains(t, err, wants)
		require.NotContains(t, err.Error(), "geheim")
		require.Len(t, err.(cli.Faults), 1, err) //nolint:errorlint // Load returns it as it is
	}
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
