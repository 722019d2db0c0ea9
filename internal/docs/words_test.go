package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaced are words that once stood for things which now have another name. CHANGELOG.md tells
// which. A text that uses them speaks of what is not there any more.
var (
	anywhere = []string{"canary", "tenure", "vigil", "basket", "sceptic", "misfortune", "warming"}
	words    = []string{"giveback", "standback", "forgo", "herd", "cadence", "pulse", "desk", "desks",
		"brake", "audit", "audits"}
	replaced = regexp.MustCompile(`(?i)` + strings.Join(anywhere, "|") + `|\b(` + strings.Join(words, "|") + `)\b`)
)

func TestNothingIsCalledByAFormerName(t *testing.T) {
	for _, kind := range []string{".go", ".lua", ".md", ".pml", ".yml"} {
		walk(t, kind, func(name, text string) {
			switch name {
			case "CHANGELOG.md", "internal/docs/words_test.go":
				return
			}
			// Few files hold one of them at all, and the expression is slow.
			lower := strings.ToLower(text)
			if !slices.ContainsFunc(slices.Concat(anywhere, words), func(w string) bool { return strings.Contains(lower, w) }) {
				return
			}
			for i, line := range strings.Split(text, "\n") {
				require.Empty(t, replaced.FindString(line), "%s:%d: %s", name, i+1, line)
			}
		})
	}
}
