//go:build mutants

package chaos

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/stretchr/testify/require"
)

// searched are the mutants of the matrix that the search of chaos/search must find too.
var searched = map[string]bool{
	"EvictedIsDead": true, "RefusedNotDoubted": true, "MostNotDoubted": true, "IdleCounted": true, "OverdueNotCounted": true,
}

// searchSteps is what a mutant may survive.
const searchSteps = "1000000"

// TestSearchMutants removes the protections that the search is about, one after the other, and
// demands that the oracle notices. TestSearch shows that the code passes with all of them.
func TestSearchMutants(t *testing.T) {
	left := len(searched)
	for _, m := range slices.Concat(mutants, fleetMutants) {
		if searched[m.name] {
			left--
		} else if m.scenario != "" {
			continue
		}
		t.Run(m.name, m.search)
	}
	require.Zero(t, left, "a mutant has another name now")
}

// search runs a search against the mutant until it finds something.
func (m mutant) search(t *testing.T) {
	list := harness.Overlay(t, t.TempDir(), "..", m.changed(t, true))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-count=1", "-v", "-timeout", "60m", "-run", "^TestSearch$", "./chaos/search/")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "ROLLCALL_STEPS="+searchSteps)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s steps of the search found nothing", searchSteps)
	require.Contains(t, string(out), "the search found something", tail(string(out)))
	t.Logf("%s: %s", m.name, found.Find(out))
}

var found = regexp.MustCompile(`ROLLCALL_SEED=\d+, step \d+\n.*`)
