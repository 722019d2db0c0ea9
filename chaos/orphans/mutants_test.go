//go:build mutants

package orphans

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants takes the protections of the engine away, one after the other, and demands that the test
// named fails. That it passes with the code as it is, is for package orphan to show. A test that does
// not compile, or does not run, catches nothing.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			out := m.run(t)
			require.Contains(t, out, "--- FAIL: "+m.test, "nothing noticed that %s:\n%s", m.what, out[max(0, len(out)-4<<10):])
			fmt.Printf("| %s | %s | %s |\n", m.name, m.what, m.test)
		})
	}
}

// run runs the test with the mutant's changes, and returns what it says.
func (m mutant) run(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", "..", "orphan"))
	require.NoError(t, err)
	replace := map[string]string{}
	for file, text := range m.changed(t) {
		instead := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		require.NoError(t, os.WriteFile(instead, []byte(text), 0o600))
		replace[filepath.Join(root, file)] = instead
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-timeout", "3m",
		"-overlay", overlay, "-run", "^"+m.test+"$", root)
	said, _ := cmd.CombinedOutput() // that it fails is what is wanted
	return string(said)
}
