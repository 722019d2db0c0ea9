package harness

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// OnThePage demands that docs/reference/faults.md, at root, names a row: itself, or by what it
// begins with and a *.
func OnThePage(t testing.TB, root, row string) {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/reference/faults.md")
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\b[A-Z]\w+\b\*?`).FindAllString(string(text), -1) {
		begins, more := strings.CutSuffix(name, "*")
		if name == row || more && strings.HasPrefix(row, begins) {
			return
		}
	}
	require.Fail(t, "docs/reference/faults.md does not name "+row)
}
