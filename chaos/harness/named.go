package harness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seed draws the same chances again if ROLLCALL_SEED names it.
var Seed = sync.OnceValue(func() uint64 {
	n, err := strconv.ParseUint(os.Getenv("ROLLCALL_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	fmt.Println("to replay: ROLLCALL_SEED=" + strconv.FormatUint(n, 10))
	return n
})

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
