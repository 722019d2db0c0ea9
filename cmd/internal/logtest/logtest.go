// Package logtest reads logs of programs in JSON, as tests judge them.
package logtest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Line is one of a log.
type Line map[string]any

// Lines requires JSON, with a time, a level, a message and instance, each once.
func Lines(t testing.TB, log, instance string) (lines []Line) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line Line
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		for _, key := range []string{"time", "level", "msg", "instance"} {
			require.NotEmpty(t, line[key], "%s in %s", key, text)
			require.Equal(t, 1, strings.Count(text, `"`+key+`":`), "%s in %s", key, text)
		}
		require.Equal(t, instance, line["instance"], text)
		lines = append(lines, line)
	}
	require.NotEmpty(t, lines)
	return lines
}

// Calm requires no warnings and errors.
func Calm(t testing.TB, log, instance string) (lines []Line) {
	t.Helper()
	lines = Lines(t, log, instance)
	for _, line := range lines {
		require.Contains(t, []any{"DEBUG", "INFO"}, line["level"], "%v", line)
	}
	return lines
}

// Has requires a line with this message, and returns the first.
func Has(t testing.TB, lines []Line, message string) Line {
	t.Helper()
	for _, line := range lines {
		if line["msg"] == message {
			return line
		}
	}
	require.Failf(t, "no such line", "%q in %v", message, lines)
	return nil
}
