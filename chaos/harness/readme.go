package harness

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// InReadme demands that the table of this folder's README.md has a line for a row of a matrix,
// with a mark if the row is part of make test.
func InReadme(t testing.TB, row string, short bool) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	if short {
		row += " ●"
	}
	require.Contains(t, string(text), "\n| "+row+" |")
}
