package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

// logLines is the page with the table of log lines.
const logLines = "../../docs/reference/metrics.md"

// joins is what lies between two parts of one literal, and logged is the beginning of a call that
// logs, with its message. Those of Log may be below WARN.
var (
	joins  = regexp.MustCompile(`"\s*\+\s*"`)
	logged = regexp.MustCompile(strings.ReplaceAll(`(?:\.(?:Warn|Error)\(|\.(?:Warn|Error)Context\(ANY, |`+
		`\.Log(?:Attrs)?\(ANY, ANY,|\bstreak\.New\(\s*ANY,)\s*"([^"]+)"`, "ANY", `[\w.]+(?:\(\))?`))
)

// noWarning is at INFO at most.
const noWarning = "lease renewal failed; retrying"

func TestEveryWarningAndErrorIsExplained(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(logLines)
	require.NoError(t, err)
	page, found := string(raw), 0
	// made of the program's name
	texts := `"ingest failed" "cleanup failed" "availability failed" "` + connect.EmbeddedNotice + `"`
	require.Contains(t, page, "`"+connect.EmbeddedNotice+"`")
	for _, folder := range []string{
		"registry", "janitor", "lease", "cmd/ingest/internal/gateway", "cmd/ingest/internal/commands",
		"cmd/internal/cli", "cmd/internal/connect", "cmd/internal/console", "cmd/internal/program",
		"cmd/internal/reload", "cmd/internal/tracing", "cmd/ingest",
		"orphan", "orphan/mongodb", "cmd/cleanup/internal/cycles", "cmd/cleanup",
		"availability", "availability/postgres", "cmd/availability/internal/api", "cmd/availability/internal/token",
		"cmd/availability/internal/database", "cmd/availability",
	} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			whole := joins.ReplaceAllString(string(source), "")
			texts += whole // a message may be a named constant
			for _, call := range logged.FindAllStringSubmatch(whole, -1) {
				if found++; call[1] != noWarning {
					require.True(t, strings.Contains(page, "`"+call[1]+"`"), "%s: %s lacks %q", name, logLines, call[1])
				}
			}
		}
	}
	require.Greater(t, found, 30)
	_, messages, _ := strings.Cut(page, "\n## Warnings and errors")
	messages, _, _ = strings.Cut(messages, "\n## ")
	// A text of three words is a message, and so is the first of an item or a row.
	for _, named := range regexp.MustCompile("(?m)^[-|] (?:ERROR )?`([^`]+)`|`([^` ]+(?: [^` ]+){2,})`").FindAllStringSubmatch(messages, -1) {
		message := named[1] + named[2]
		require.True(t, strings.Contains(texts, `"`+message+`"`), "%s explains %q, which nothing logs", logLines, message)
	}
}
