//go:build owners

package owners

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each way in which broken.mjs breaks an owner fails the case after which it is named, before the
// comma. A case that passes all the same would be of no use to somebody who writes an owner.
func TestBrokenOwnersAreNoticed(t *testing.T) {
	t.Parallel()
	if os.Getenv("OWNER") != "" {
		t.Skip("these are not of the owner under test")
	}
	broken, err := filepath.Abs("broken.mjs")
	require.NoError(t, err)
	text, err := os.ReadFile(broken)
	require.NoError(t, err)
	ways := regexp.MustCompile(`(?m)^  (?:'([^']+)'|(\w+)): \(\) =>`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(ways), 40)
	for _, w := range ways {
		way := w[1] + w[2]
		name, _, _ := strings.Cut(way, ",")
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0],
				"-test.run=^TestOwnersConform$/^owner$/^"+strings.ReplaceAll(name, " ", "_")+"$", "-test.v")
			cmd.Env = append(os.Environ(), "OWNER=node "+broken, "BREAK="+way, "PATIENCE=15s")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the case passes")
			require.Regexp(t, "(?s)=== RUN.*Error Trace", string(out), "it fails for another reason")
			require.NotContains(t, string(out), "Event:started", "it does not start")
			t.Logf("%s", regexp.MustCompile(`(?s)Error:.*?\n\s*(Messages:[^\n]*)?`).FindString(string(out)))
		})
	}
}
