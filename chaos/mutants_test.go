//go:build mutants

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

const (
	// mutantTries: a scenario may miss by chance what it is there for.
	mutantTries = 3
	// mutantPatience is for one scenario, its waiting in vain included.
	mutantPatience = 4 * time.Minute
)

// catch is what became of a mutant.
type catch struct {
	Mutant    string         `json:"mutant"`
	What      string         `json:"what"`
	Without   []string       `json:"without,omitempty"` // the layers that were away besides
	Scenario  string         `json:"scenario"`
	Check     string         `json:"check"` // that caught it; "" if none did
	Others    map[string]int `json:"violations,omitempty"`
	Evictions int            `json:"evictions"` // until the first violation
	After     time.Duration  `json:"after_ns"`  // since the scenario began
	Tries     int            `json:"tries"`
	Control   string         `json:"control,omitempty"` // the same scenario with only the layers away
}

// TestMutants takes the protections of the code away, one after the other, and demands that a check
// fails: by what the judge says and nothing else. A crash, a wait in vain, another assertion
// catches nothing. That the same scenarios pass with the code as it is, is for TestMatrix to show;
// that what was taken away besides is not what was noticed, a control run shows.
func TestMutants(t *testing.T) {
	var mu sync.Mutex
	var caught []catch
	t.Cleanup(func() { writeCatches(t, caught) })
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c := m.hunt(t)
			mu.Lock()
			defer mu.Unlock()
			caught = append(caught, c)
		})
	}
}

// hunt runs the mutant in its scenario until it is caught.
func (m mutant) hunt(t *testing.T) catch {
	c := catch{Mutant: m.name, What: m.what, Scenario: m.scenario}
	for _, l := range m.without {
		c.Without = append(c.Without, l.name)
	}
	binary := m.build(t, true)
	var said string
	for c.Tries = 1; c.Tries <= mutantTries && c.Check == ""; c.Tries++ {
		r, out := m.run(t, binary, m.name)
		said, c.Others = out, r.Violations
		c.Evictions, c.After = r.FirstEvictions, r.FirstAfter
		for _, check := range m.checks {
			if c.Check == "" && r.Failed && r.Violations[check] > 0 {
				c.Check = check
			}
		}
	}
	c.Tries--
	if c.Check == "" {
		t.Errorf("nothing noticed it; violations %v. The last run said:\n%s", c.Others, tail(said))
		return c
	}
	if len(m.without) > 0 {
		c.Control = "ok"
		if r, out := m.run(t, m.build(t, false), m.name+"Control"); r.Failed || r.Scenario == "" {
			c.Control = "FAILED"
			t.Errorf("the scenario fails already without %s, so that this says nothing of the mutant:\n%s", strings.Join(c.Without, ", "), tail(out))
		}
	}
	return c
}

// build builds the program with the mutant's changes, or only without the layers.
func (m mutant) build(t *testing.T, mutated bool) string {
	t.Helper()
	return harness.BuildOf(t, "ingest", "-overlay", harness.Overlay(t, t.TempDir(), "..", m.changed(t, mutated)))
}

// run runs the scenario against a program, in a process of its own: its failure is none of this
// test. A result without a scenario means that nothing was judged. What the last such run leaves is
// kept under .cache/mutants.
func (m mutant) run(t *testing.T, binary, keep string) (r result, out string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".cache", "mutants", keep))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	self, err := os.Executable()
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), mutantPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestMatrix$/^"+m.scenario+"$", "-test.v")
	cmd.Env = append(os.Environ(), harness.GivenIngest+"="+binary, "ROLLCALL_REPORT="+dir, keptRuns+"="+dir)
	said, _ := cmd.CombinedOutput() // that it fails is what is wanted; how, says the report
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if os.IsNotExist(err) {
		return r, string(said)
	}
	require.NoError(t, err)
	var rows []result
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 1)
	return rows[0], string(said)
}

func tail(s string) string { return s[max(0, len(s)-16<<10):] }

// writeCatches prints the table, and writes it beside the scenarios'.
func writeCatches(t *testing.T, caught []catch) {
	order := func(c catch) int { return slices.IndexFunc(mutants, func(m mutant) bool { return m.name == c.Mutant }) }
	slices.SortFunc(caught, func(a, b catch) int { return order(a) - order(b) })
	var b strings.Builder
	b.WriteString("| mutant | what is changed | besides without | scenario | caught by | evictions, time until then | tries | control |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range caught {
		by := c.Check
		if by == "" {
			by = "NOBODY"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d, %s | %d | %s |\n", c.Mutant, c.What, strings.Join(c.Without, "; "), c.Scenario, by,
			c.Evictions, c.After.Round(100*time.Millisecond), c.Tries, c.Control)
	}
	fmt.Print(b.String())
	dir := os.Getenv("ROLLCALL_REPORT")
	if dir == "" {
		return
	}
	text, err := json.MarshalIndent(caught, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mutants.json"), append(text, '\n'), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mutants.md"), []byte(b.String()), 0o644))
}
