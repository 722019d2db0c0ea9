//go:build mutants

package orphans

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// TestMutants takes the protections of the engine away, one after the other, and demands that the
// test named fails, or that the oracle rejects what came of the row. That both pass with the code
// as it is, is for package orphan and TestMatrix to show. What does not compile, or ends in another
// way, catches nothing.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			by, cmd, says := m.test, m.tested(t), "--- FAIL: "+m.test
			if m.row != "" {
				by, cmd, says = m.row, m.played(t), oracleRejects
			}
			said, _ := cmd.CombinedOutput() // that it fails is what is wanted
			out := string(said)
			require.Contains(t, out, says, "nothing noticed that %s:\n%s", m.what, out[max(0, len(out)-4<<10):])
			fmt.Printf("| %s | %s | %s |\n", m.name, m.what, by)
		})
	}
}

// tested is the test of package orphan with the mutant's changes.
func (m mutant) tested(t *testing.T) *exec.Cmd {
	return exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-timeout", "3m",
		"-overlay", m.overlay(t), "-run", "^"+m.test+"$", root(t))
}

// played is the row with the mutant's changes.
func (m mutant) played(t *testing.T) *exec.Cmd {
	binary := harness.BuildOf(t, "cleanup", "-overlay", m.overlay(t))
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestMatrix$/^"+m.row+"$", "-test.v")
	cmd.Env = append(os.Environ(), givenCleanup+"="+binary)
	return cmd
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "orphan"))
	require.NoError(t, err)
	return dir
}

// overlay is the file for go's -overlay with the mutant's changes.
func (m mutant) overlay(t *testing.T) (path string) {
	t.Helper()
	return harness.Overlay(t, t.TempDir(), root(t), m.changed(t))
}
