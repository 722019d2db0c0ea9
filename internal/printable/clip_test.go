package printable

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOthersWroteIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, "short", Clip("short"))
	require.Equal(t, strings.Repeat("é", 32)+"… (66 bytes)", Clip(strings.Repeat("é", 33)))
	require.Equal(t, strings.Repeat("x", 63)+"… (65 bytes)", Clip(strings.Repeat("x", 63)+"é"), "whole characters")
	require.Equal(t, strings.Repeat("x", 2048)+"… (3000 bytes)", Sentence(strings.Repeat("x", 3000)))
}

func TestALogLineIsBoundedWhateverItRepeats(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("y", 4<<20)
	var text bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{ReplaceAttr: Attr})).With("instance", long)
	log.Warn("said", "mitra", long, "error", errors.New(long), "ids", []string{long, long}, "n", 7,
		slog.Group("settings", "dir", strings.Repeat("/d", 100)))
	require.Less(t, text.Len(), 3000)
	require.Contains(t, text.String(), `"mitra":"`+strings.Repeat("y", 64)+`… (4194304 bytes)"`)
	require.Contains(t, text.String(), `"error":"`+strings.Repeat("y", 2048)+"…")
	require.Contains(t, text.String(), `"n":7`)
	require.Contains(t, text.String(), strings.Repeat("/d", 100))
}
