package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// odd are turns of phrase that read as translated, each with what an engineer would write instead.
var odd = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\b(says?|said|tells?|told)\b`):                                  "returns, reports, logs",
	regexp.MustCompile(`(?:^|[.:;] )(What|Who|Whoever|Those who|That which) [a-z]+`):        "name the thing",
	regexp.MustCompile(`(?i)\b(of which|of whom|by which|of those|of it that)\b`):           "two sentences",
	regexp.MustCompile(`(?i)\bbehind (it|them|that|the (record|write|script|check|hold))`):  "after",
	regexp.MustCompile(`(?i)\b(but for|but some|for want of|be it|for so long|so often)\b`): "except, for lack of",
	regexp.MustCompile(`(?i)\bstands? (in|at|as|beside|on|still|there|twice)\b`):            "is, is stored, is in",
	regexp.MustCompile(`(?i)\b(is|are) (not )?there\b[.,;:)]`):                              "exists, is set",
	regexp.MustCompile(`(?i)\b(it|that|this|which) (is|are) no [a-z]+`):                     "is not a",
}

// The most of them in 10,000 words. Other projects have 3 to 9. A change may lower these, not raise
// them.
const mostInComments, mostInPages = 3, 3

func TestTheTextReadsAsAnEngineerWouldSayIt(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\]\\([^)]*\\)")
	count := func(name, line string) (words, marks int) {
		line = quoted.ReplaceAllString(line, "x")
		for mark, better := range odd {
			if n := len(mark.FindAllString(line, -1)); n > 0 {
				marks += n
				t.Logf("%s: %s (%s)", name, strings.TrimSpace(line), better)
			}
		}
		return len(strings.Fields(line)), marks
	}
	check := func(kind string, most int, text func(name, line string) (string, bool)) {
		words, marks := 0, 0
		walk(t, kind, func(name, all string) {
			if strings.HasSuffix(name, "_test.go") || name == "CHANGELOG.md" {
				return
			}
			for line := range strings.Lines(all) {
				if prose, ok := text(name, line); ok {
					w, m := count(name, prose)
					words, marks = words+w, marks+m
				}
			}
		})
		require.LessOrEqual(t, 10_000*marks/words, most, "%d in %d words of %s files: run with -v to see them", marks, words, kind)
	}
	check(".go", mostInComments, func(_, line string) (string, bool) {
		_, comment, found := strings.Cut(line, "// ")
		return comment, found
	})
	fenced, of := false, ""
	check(".md", mostInPages, func(name, line string) (string, bool) {
		if name != of {
			fenced, of = false, name
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			return "", false
		}
		return line, !fenced
	})
}
