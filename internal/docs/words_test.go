package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaced are words that once stood for things which now have another name. CHANGELOG.md tells
// which. A text that uses them speaks of what is not there any more.
var replaced = regexp.MustCompile(`(?i)canary|tenure|vigil|basket|sceptic|misfortune|stranger|warming|` +
	`\b(giveBack|standBack|forgo|herd|cadence|ledger|pulse|desks?|brake|audits?|doubts?)\b`)

func TestNothingIsCalledByAFormerName(t *testing.T) {
	for _, kind := range []string{".go", ".lua", ".md", ".pml", ".yml"} {
		walk(t, kind, func(name, text string) {
			switch name {
			case "CHANGELOG.md", "internal/docs/words_test.go",
				"docs/results.md": // as the runs wrote them
				return
			}
			for i, line := range strings.Split(text, "\n") {
				require.Empty(t, replaced.FindString(line), "%s:%d: %s", name, i+1, line)
			}
		})
	}
}
