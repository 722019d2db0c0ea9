package chaos

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// module is the path of this module.
const module = "github.com/rollcall-redis/rollcall/"

// TestEveryMutantStillCompiles checks the types of each package that a mutant changes, and of the
// same without its layers alone. To build them all takes half an hour.
func TestEveryMutantStillCompiles(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	var all []changed
	for _, m := range slices.Concat(mutants.All, searchMutants.All) {
		for _, edits := range []edits{slices.Concat(m.Edits, m.Without), m.Without} {
			c := changed{m.Name, packagesOf(mutants.Changed(t, m.Name, edits))}
			all = append(all, c)
			for dir := range c.packages {
				packages["./"+dir] = true
			}
		}
	}
	built := build(t, slices.Sorted(maps.Keys(packages)))
	for _, c := range all {
		for dir, files := range c.packages {
			built.check(t, c.mutant, dir, files)
		}
	}
}

// changed is a mutant, or the code without what it does without, by folder and name of a file.
type changed struct {
	mutant   string
	packages map[string]map[string]string
}

// packagesOf are the Go files among those that are changed, by folder and name.
func packagesOf(files map[string]string) map[string]map[string]string {
	found := map[string]map[string]string{}
	for file, text := range files {
		dir, name := path.Split(file)
		if dir = path.Clean(dir); path.Ext(name) == ".go" {
			if found[dir] == nil {
				found[dir] = map[string]string{}
			}
			found[dir][name] = text
		}
	}
	return found
}

// compiled is what the compiler knows of packages and of all that they import.
type compiled struct {
	fset    *token.FileSet
	imports types.Importer
	files   map[string][]string // by the path of the package
}

// build compiles packages as BuildIngest does, so that what one has compiled the other finds.
func build(t *testing.T, packages []string) *compiled {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", slices.Concat([]string{
		"list", "-export", "-deps", "-tags", "failpoints",
		"-f", "{{.ImportPath}}\t{{.Export}}\t{{range .GoFiles}}{{.}} {{end}}",
	}, redistest.Raced(), packages)...)
	list.Dir, list.Stderr = "..", os.Stderr
	said, err := list.Output()
	require.NoError(t, err)
	c, exports := &compiled{fset: token.NewFileSet(), files: map[string][]string{}}, map[string]string{}
	for line := range bytes.Lines(said) {
		parts := strings.Split(strings.TrimSpace(string(line)), "\t")
		if len(parts) == 3 {
			exports[parts[0]], c.files[parts[0]] = parts[1], strings.Fields(parts[2])
		}
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c
}

// check checks the types of a package with some of its files changed.
func (c *compiled) check(t *testing.T, name, dir string, changed map[string]string) {
	t.Helper()
	names := c.files[module+dir]
	require.NotEmpty(t, names, dir)
	var files []*ast.File
	for _, file := range names {
		var text any // nil: it is read
		if instead, ok := changed[file]; ok {
			text = instead
		}
		f, err := parser.ParseFile(c.fset, filepath.Join("..", dir, file), text, parser.SkipObjectResolution)
		require.NoError(t, err, "mutant %s", name)
		files = append(files, f)
	}
	config := types.Config{Importer: c.imports}
	_, err := config.Check(module+dir, c.fset, files, nil)
	require.NoError(t, err, "mutant %s", name)
}
