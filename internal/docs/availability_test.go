package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the page shows is the text of tests that run.
func TestTheCodeOnThePageOfAvailabilityRuns(t *testing.T) {
	t.Parallel()
	code := read(t, "availability/postgres/example_test.go")
	page := read(t, "docs/availability.md")
	for _, name := range []string{"embed", "use"} {
		_, rest, ok := strings.Cut(code, "\t// page: "+name+"\n")
		require.True(t, ok, name)
		block, _, ok := strings.Cut(rest, "\t// page: end\n")
		require.True(t, ok, name)
		var b strings.Builder
		for line := range strings.Lines(block) {
			b.WriteString(strings.TrimPrefix(line, "\t"))
		}
		require.Contains(t, page, "```go\n"+b.String()+"```\n", "docs/availability.md has another text of %s", name)
	}
}
