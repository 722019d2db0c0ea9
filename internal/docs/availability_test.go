package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page shows the text of a test that runs.
func TestTheCodeOnThePageOfAvailabilityRuns(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(read(t, "availability/postgres/example_test.go"), "\t// page: use\n")
	block, _, ok := strings.Cut(rest, "\t// page: end\n")
	require.True(t, ok)
	shown := strings.TrimPrefix(strings.ReplaceAll("\n"+block, "\n\t", "\n"), "\n")
	require.Contains(t, read(t, "docs/availability.md"), "```go\n"+shown+"```\n")
}
