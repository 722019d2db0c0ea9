package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Overlay writes replacements for files below root into dir, and returns the list for go's
// -overlay.
func Overlay(t testing.TB, dir, root string, files map[string]string) (path string) {
	t.Helper()
	root, err := filepath.Abs(root)
	require.NoError(t, err)
	replace := make(map[string]string, len(files))
	for file, text := range files {
		instead := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		require.NoError(t, os.WriteFile(instead, []byte(text), 0o600))
		replace[filepath.Join(root, file)] = instead
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, list, 0o600))
	return path
}
