package harness

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// InReadme demands a row's line in this folder's README.md, marked if make test has it.
func InReadme(t testing.TB, row string, short bool) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	if short {
		row += " ●"
	}
	require.Contains(t, string(text), "\n| "+row+" |")
}
