package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mutant is the code without a protection, which the judge of a suite must notice in a row, or a
// test of a package.
type Mutant struct {
	Name    string
	What    string // is changed
	Edits   []Edit
	Without []Edit   // further protections, which would make up for it
	Row     string   // in the suite's matrix
	Checks  []string // of the row's judge, if it has some: one must fail
	Test    string   // or this test fails
	Of      string   // the package's folder; "": the suite's
	// Steps is for a search, named in Test. Places is a regular expression for where it plays; "":
	// all.
	Steps  int
	Places string
}

// Edit replaces the only occurrence of a text, or all.
type Edit struct {
	File       string // below the suite's folder; "": the file there that has it
	From, To   string
	Everywhere bool
}

// In replaces a text that occurs once in a file; "": of the suite's folder.
func In(file, from, to string) Edit { return Edit{File: file, From: from, To: to} }

// ByTest is a mutant that a test of a package notices; "": of the suite's.
func ByTest(name, what, test, of string, edits ...Edit) Mutant {
	return Mutant{Name: name, What: what, Edits: edits, Test: test, Of: of}
}

// Mutants belong to a suite.
type Mutants struct {
	All   []Mutant
	Dir   string   // below the root
	Tests []string // of the named tests
	// Rows run against Program, whose binary the variable Given names. Without one, the suite
	// itself is built with the changes.
	Program, Given string
	// Rejects is the message of a rejected row, before the name of the check that failed.
	Rejects string
	// Tries is how often a row is played again, since it may miss its fault by chance.
	Tries int
	// Kept has a search's seeds, each with its mutant.
	Kept string
}

// KeptRuns names the folder in which a failing run keeps its files.
const KeptRuns = "ROLLCALL_RUNS"

const found = "the search found something"

// root is the module's, above the suite's folder.
var root = sync.OnceValue(func() string {
	path := ".."
	for range 5 {
		if _, err := os.Stat(filepath.Join(path, "go.work")); err == nil {
			return path
		}
		path = filepath.Join("..", path)
	}
	panic("no go.work above the suite")
})

// Changed returns the files that edits change, by path from the module's root.
func (s Mutants) Changed(t *testing.T, name string, edits []Edit) map[string]string {
	t.Helper()
	changed := map[string]string{}
	for _, e := range edits {
		files := []string{filepath.Join(s.Dir, e.File)}
		if e.File == "" {
			files = s.code(t)
		}
		places := 0
		for _, file := range files {
			text, has := changed[file]
			if !has {
				read, err := os.ReadFile(filepath.Join(root(), file))
				require.NoError(t, err)
				text = string(read)
			}
			if n := strings.Count(text, e.From); n > 0 {
				places += n
				changed[file] = strings.ReplaceAll(text, e.From, e.To)
			}
		}
		require.True(t, places == 1 || e.Everywhere && places > 1,
			"mutant %s does not fit any more: %q stands %d times", name, e.From, places)
	}
	return changed
}

func (s Mutants) code(t *testing.T) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root(), s.Dir))
	require.NoError(t, err)
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".lua") ||
			strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, filepath.Join(s.Dir, name))
		}
	}
	return files
}

// Fit demands that mutants fit the code, and their rows or tests exist.
func (s Mutants) Fit(t *testing.T, rows ...string) {
	t.Helper()
	names := map[string]bool{}
	defer func() {
		for name := range s.kept(t) {
			require.True(t, names[name], "%s keeps a seed of %s, which is no mutant", s.Kept, name)
		}
	}()
	for _, m := range s.All {
		require.False(t, names[m.Name], "two mutants %s", m.Name)
		names[m.Name] = true
		require.NotEmpty(t, s.Changed(t, m.Name, slices.Concat(m.Edits, m.Without)), m.Name)
		if m.Row != "" {
			require.Contains(t, rows, m.Row, "mutant %s", m.Name)
			continue
		}
		tests := ""
		for _, dir := range s.tests(m) {
			files, err := filepath.Glob(filepath.Join(root(), dir, "*_test.go"))
			require.NoError(t, err)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				tests += string(text)
			}
		}
		require.Contains(t, tests, "\nfunc "+m.Test+"(", "mutant %s", m.Name)
	}
}

func (s Mutants) tests(m Mutant) []string {
	if m.Of != "" {
		return []string{m.Of}
	}
	return s.Tests
}

// Run demands that each mutant is noticed. One that does not compile, or ends in another way, is
// not caught. Both suite and package pass without changes, and a control run shows that the further
// removals alone were not noticed.
func (s Mutants) Run(t *testing.T) {
	for _, m := range s.All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, seed := range s.kept(t)[m.Name] {
				cmd := s.command(t, m, m.Edits)
				cmd.Env = append(os.Environ(), "ROLLCALL_SEED="+seed)
				out, _ := cmd.CombinedOutput()
				require.Contains(t, string(out), found, "seed %s finds %s no more:\n%s", seed, m.Name, end(out))
			}
			var by string
			var out []byte
			for try := 0; by == "" && try <= s.Tries; try++ {
				out, _ = s.command(t, m, slices.Concat(m.Edits, m.Without)).CombinedOutput() // it is to fail
				by = s.noticed(m, string(out))
			}
			require.NotEmpty(t, by, "nothing noticed that %s:\n%s", m.What, end(out))
			if len(m.Without) > 0 {
				out, err := s.command(t, m, m.Without).CombinedOutput()
				require.NoError(t, err, "it fails already without what is away besides:\n%s", end(out))
			}
			fmt.Printf("| %s | %s | %s |\n", m.Name, m.What, by)
		})
	}
}

// noticed returns what noticed a mutant, from its output; "": nothing did.
func (s Mutants) noticed(m Mutant, said string) string {
	by, signs := m.Test, []string{"--- FAIL: " + m.Test}
	switch {
	case m.Steps > 0:
		signs = []string{found}
	case m.Row != "":
		by, signs = m.Row, []string{s.Rejects}
		if len(m.Checks) > 0 {
			signs = nil
		}
		for _, check := range m.Checks {
			signs = append(signs, s.Rejects+" "+check)
		}
	}
	for _, sign := range signs {
		if strings.Contains(said, sign) {
			return by
		}
	}
	return ""
}

func end(out []byte) string { return string(out[max(0, len(out)-8<<10):]) }

func (s Mutants) command(t *testing.T, m Mutant, edits []Edit) *exec.Cmd {
	t.Helper()
	overlay := Overlay(t, t.TempDir(), root(), s.Changed(t, m.Name, edits))
	of, name := s.tests(m), "^"+m.Test+"$"
	if m.Row != "" {
		of, name = nil, "^TestMatrix$/^"+m.Row+"$"
	}
	if m.Row != "" && s.Program != "" {
		binary := BuildOf(t, s.Program, "-overlay", overlay)
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run", name, "-test.v", "-test.timeout=8m")
		cmd.Env = append(os.Environ(), s.Given+"="+binary, KeptRuns+"="+t.TempDir())
		return cmd
	}
	limit := "8m"
	if m.Steps > 0 {
		name, limit = name+"/"+m.Places+"/^fresh$", "60m"
	}
	args := []string{"test", "-count=1", "-v", "-vet=off", "-timeout", limit, "-overlay", overlay, "-run", name}
	for _, dir := range of {
		path, err := filepath.Abs(filepath.Join(root(), dir))
		require.NoError(t, err)
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...) // without a folder: the suite's own
	if m.Steps > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprint("ROLLCALL_STEPS=", m.Steps))
	}
	return cmd
}

func (s Mutants) kept(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	if s.Kept == "" {
		return all
	}
	text, err := os.ReadFile(filepath.Join(root(), s.Kept))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] != "#" {
			all[words[1]] = append(all[words[1]], words[0])
		}
	}
	return all
}

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
