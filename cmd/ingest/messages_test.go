package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

// messageAt maps a logger's methods to the index of the message argument. Those of Log may be
// below WARN.
var messageAt = map[string]int{
	"Warn": 0, "Error": 0, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2,
}

// unexplained messages need no row.
var unexplained = map[string]bool{
	"lease renewal failed; retrying": true, // INFO at most
}

// logLines is the page with the table of log lines.
const logLines = "../../docs/reference/logs.md"

func TestEveryWarningAndErrorIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(logLines)
	require.NoError(t, err)
	found := 0
	// made of the program's name
	texts := map[string]bool{"ingest failed": true, "cleanup failed": true, "availability failed": true}
	for _, folder := range []string{
		"../../registry", "../../janitor", "../../lease", "../../cmd/ingest/internal/gateway",
		"../../cmd/ingest/internal/commands",
		"../../cmd/internal/cli", "../../cmd/internal/connect", "../../cmd/internal/console",
		"../../cmd/internal/program",
		"../../cmd/internal/reload", "../../cmd/internal/tracing", ".",
		"../../orphan", "../../orphan/mongodb", "../../cmd/cleanup/internal/cycles", "../cleanup",
		"../../availability", "../../availability/postgres", "../../cmd/availability/internal/api", "../../cmd/availability/internal/token", "../../cmd/availability/internal/database",
		"../availability",
	} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, name, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				texts[text(n)] = true // a message may be a named constant
				message, ok := loggedMessage(n)
				if !ok || unexplained[message] {
					return true
				}
				found++
				require.True(t, strings.Contains(string(page), "`"+message+"`"), "%s: %s lacks %q", positions.Position(n.Pos()), logLines, message)
				return true
			})
		}
	}
	require.Greater(t, found, 30)
	messages, _, _ := strings.Cut(string(page), "\n## The eviction log")
	for _, row := range regexp.MustCompile("(?m)^\\| (?:ERROR )?`([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(messages, -1) {
		require.True(t, texts[row[1]], "%s explains %q, which nothing logs", logLines, row[1])
	}
}

// text returns a string literal's text, or "" for anything else.
func text(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(n.Value)
		return text
	case *ast.BinaryExpr:
		return text(n.X) + text(n.Y)
	}
	return ""
}

// loggedMessage returns the message of a logger's call, if n is one and has a literal message.
func loggedMessage(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	at, ok := messageAt[method.Sel.Name]
	if from, isName := method.X.(*ast.Ident); isName && from.Name == "streak" {
		at, ok = 1, true // streak.New(log, message, ...)
	}
	if !ok || len(call.Args) <= at {
		return "", false
	}
	switch message := call.Args[at].(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(message.Value)
		return text, err == nil
	case *ast.Ident:
		return connect.EmbeddedNotice, message.Name == "EmbeddedNotice"
	case *ast.BinaryExpr:
		if text(message.X) != "" {
			return text(message), true
		}
		return "ingest failed", true // the program's name and what happened
	}
	return "", false
}
