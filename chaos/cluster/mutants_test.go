//go:build mutants

package cluster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// TestMutants takes the protections away, one after the other, and demands that the oracle rejects
// what came of the row, or that the test named fails. That both pass with the code as it is, is for
// TestMatrix and the package to show; that what was taken away besides is not what was noticed, a
// control run shows.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			by, says := m.test, "--- FAIL: "+m.test
			if m.row != "" {
				by, says = m.row, oracleRejects
			}
			out, _ := m.run(t, true).CombinedOutput() // that it fails is what is wanted
			require.Contains(t, string(out), says, "nothing noticed that %s:\n%s", m.what, tail(out))
			if len(m.without) > 0 {
				out, err := m.run(t, false).CombinedOutput()
				require.NoError(t, err, "it fails already without what is away besides:\n%s", tail(out))
			}
			fmt.Printf("| %s | %s | %s |\n", m.name, m.what, by)
		})
	}
}

func tail(out []byte) string { return string(out[max(0, len(out)-8<<10):]) }

// run is the row or the test, with the mutant's changes, or only without what is away besides.
func (m mutant) run(t *testing.T, mutated bool) *exec.Cmd {
	t.Helper()
	overlay := harness.Overlay(t, t.TempDir(), root, m.changed(t, mutated))
	of, name := m.of, "^"+m.test+"$"
	if m.row != "" {
		of, name = "chaos/cluster", "^TestMatrix$/^"+m.row+"$"
	}
	dir, err := filepath.Abs(filepath.Join(root, of))
	require.NoError(t, err)
	return exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-vet=off", "-timeout", "8m",
		"-overlay", overlay, "-run", name, dir)
}
