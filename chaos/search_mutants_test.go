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

// searched are the mutants of the matrix that the search of janitor/search_test.go must find too.
var searched = map[string]bool{
	"ServerNotCompared": true, "CountersNotCompared": true, "UnreadableOverwrites": true,
	"OwnGraceOnly": true, "SilentForgotten": true, "OwnersOfAScanUnknown": true,
}

// searchedFleets are the mutants of the matrix that the search of chaos/search must find.
var searchedFleets = map[string]bool{"OverdueNotCounted": true, "NoHoldForClientsTurnedAway": true}

// searchSteps is what a mutant may survive.
const searchSteps = "1000000"

// TestSearchMutants removes the protections that the searches are about, one after the other, and
// demands that an oracle notices. TestSearch shows that the code passes with all of them.
func TestSearchMutants(t *testing.T) {
	left := len(searched) + len(searchedFleets)
	for _, m := range mutants {
		if searched[m.name] {
			left--
			t.Run(m.name, func(t *testing.T) { m.search(t, "^TestSearch$/^real", "./janitor/") })
		}
		if searchedFleets[m.name] {
			left--
			t.Run(m.name+" in fleets", func(t *testing.T) { m.search(t, "^TestSearch$", "./chaos/search/") })
		}
	}
	require.Zero(t, left, "a mutant has another name now")
	for _, m := range fleetMutants {
		t.Run(m.name, func(t *testing.T) { m.search(t, "^TestSearch$", "./chaos/search/") })
	}
}

// search runs a search against the mutant until it finds something.
func (m mutant) search(t *testing.T, tests, pkg string) {
	list := harness.Overlay(t, t.TempDir(), "..", m.changed(t, true))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-count=1", "-v", "-timeout", "60m", "-run", tests, pkg)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "ROLLCALL_STEPS="+searchSteps)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s steps of the search found nothing", searchSteps)
	require.Contains(t, string(out), "the search found something", tail(string(out)))
	t.Logf("%s: %s", m.name, found.Find(out))
}

var found = regexp.MustCompile(`ROLLCALL_SEED=\d+, step \d+\n.*`)
