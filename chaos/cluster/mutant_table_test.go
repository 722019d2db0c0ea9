package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the code with one of its protections on a Cluster taken away, which the oracle must
// notice in a row, or a test of a package: TestMutants sees it fail. It is a few changes to the
// text of the code, put over the files when the test is built (go test -overlay). What is here
// needs no tag, so that a change of the code which a mutant rests on is told by the next run of all
// tests.
type mutant struct {
	name    string
	what    string // is changed
	edits   []edit
	without []edit // further protections that must be away, or they would make up for the missing one
	row     string // of the matrix
	test    string // or this test
	of      string // of this package
}

// An edit replaces what stands exactly once in a file.
type edit struct{ file, from, to string }

var (
	noRunID    = edit{"guard/witness.lua", "if id ~= '' and w[6] ~= id then return 'restarted' end", ""}
	noCounters = edit{"guard/witness.lua",
		"if fell(w[7], connections) or fell(w[8], commands) or fell(w[9], evicted) then return 'restarted' end", ""}
	noSaying = edit{"registry/beat.lua", "if ARGV[6] == '1' then tell_gap(KEYS[4], at) end\n", ""}
)

var mutants = []mutant{
	{
		name: "NoRunID", what: "the witness does not know one server from another",
		edits: []edit{noRunID}, without: []edit{noCounters},
		row: "SlotMovesWhileItsSourceDies",
	},
	{
		name: "TicksWithoutTheNeverKey", what: "ticks are answered while the slot moves",
		edits:   []edit{{"guard/witness.go", "g.layout.Roster(), g.layout.Never()}", "g.layout.Roster()}"}},
		without: []edit{noRunID, noCounters, noSaying},
		row:     "HeartbeatMovesLongBeforeTheRest",
	},
	{
		name: "LookUpWithAnUndeclaredKey", what: "a look-up reads a heartbeat that it does not declare",
		edits: []edit{{"registry/lookup.lua", "if ARGV[3] == '1' and KEYS[2] ~= heartbeat then return { owner } end\n", ""}},
		test:  "TestALookUpWhileTheSlotMovesDoesNotSayThatTheOwnerIsDead", of: "registry",
	},
	{
		name: "RetriedCommands", what: "what was not answered is sent again",
		edits: []edit{{"lease/client.go", "c.MaxRedirects, c.ClusterStateReloadInterval = -1, reload",
			"c.MaxRedirects, c.ClusterStateReloadInterval = 3, reload"}},
		test: "TestOnAClusterNothingIsSentTwiceAndASlotThatMovedIsFound", of: "lease",
	},
}

const root = "../.."

// changed are the files that a mutant changes, or only the missing protections besides.
func (m mutant) changed(t *testing.T, mutated bool) map[string]string {
	t.Helper()
	edits := m.without
	if mutated {
		edits = slices.Concat(m.edits, m.without)
	}
	files := map[string]string{}
	for _, e := range edits {
		text, ok := files[e.file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, e.file))
			require.NoError(t, err)
			text = string(read)
		}
		require.Equal(t, 1, strings.Count(text, e.from), "mutant %s: %q does not stand once in %s", m.name, e.from, e.file)
		files[e.file] = strings.Replace(text, e.from, e.to, 1)
	}
	return files
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	rows := matrix()
	for _, m := range mutants {
		require.NotEmpty(t, m.changed(t, true), m.name)
		require.True(t, m.test != "" && m.of != "" ||
			slices.ContainsFunc(rows, func(r row) bool { return r.name == m.row }), m.name)
	}
}
