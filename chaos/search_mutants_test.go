//go:build mutants

package chaos

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/stretchr/testify/require"
)

// searched are the mutants that also the search of janitor/search_test.go must find.
var searched = map[string]bool{
	"ServerNotCompared": true, "CountersNotCompared": true, "UnreadableOverwrites": true,
	"OwnGraceOnly": true, "SilentForgotten": true, "OwnersOfAScanUnknown": true,
}

// searchSteps is what a mutant may survive.
const searchSteps = "1000000"

// TestSearchMutants takes the protections away that the search is about, one after the other, and
// demands that its oracle finds something living deleted. That the code as it is passes, is for
// TestSearch to show.
func TestSearchMutants(t *testing.T) {
	found := regexp.MustCompile(`ROLLCALL_SEED=\d+, step \d+`)
	left := len(searched)
	for _, m := range mutants {
		if !searched[m.name] {
			continue
		}
		left--
		t.Run(m.name, func(t *testing.T) {
			list := harness.Overlay(t, t.TempDir(), "..", m.changed(t, true))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-count=1", "-v", "-timeout", "60m",
				"-run", "^TestSearch$/^real", "./janitor/")
			cmd.Dir = ".."
			cmd.Env = append(os.Environ(), "ROLLCALL_STEPS="+searchSteps)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s steps of the search found nothing", searchSteps)
			require.Contains(t, string(out), "the search found something", tail(string(out)))
			t.Logf("%s: %s", m.name, found.Find(out))
		})
	}
	require.Zero(t, left, "a mutant has another name now")
}
