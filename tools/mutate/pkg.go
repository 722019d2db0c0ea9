package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// pkg knows names and types as far as possible.
type pkg struct {
	fset  *token.FileSet
	files map[string]*ast.File
	texts map[string]string
	info  *types.Info
	clock map[types.Object]bool // variables read from the clock
}

// newPkg resolves types as far as possible without packages that cannot be imported.
func newPkg(texts map[string]string, imports types.Importer) (*pkg, error) {
	p := &pkg{
		fset: token.NewFileSet(), files: map[string]*ast.File{}, texts: texts,
		info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{},
			Defs:  map[*ast.Ident]types.Object{},
			Uses:  map[*ast.Ident]types.Object{},
		},
		clock: map[types.Object]bool{},
	}
	var files []*ast.File
	for name, text := range texts {
		f, err := parser.ParseFile(p.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files[name] = f
		files = append(files, f)
	}
	check := types.Config{Importer: imports, Error: func(error) {}}
	_, _ = check.Check("", p.fset, files, p.info) // nodes of unknown type are changed
	for _, f := range files {
		ast.Inspect(f, p.findClock)
	}
	return p, nil
}

func (p *pkg) findClock(n ast.Node) bool {
	if set, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(set.Rhs, p.asksClock) {
		for _, to := range set.Lhs {
			if name, ok := to.(*ast.Ident); ok {
				p.clock[p.info.ObjectOf(name)] = true
			}
		}
	}
	return true
}

func (p *pkg) asksClock(e ast.Expr) (asks bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		asks = asks || ok && p.isClock(p.info.Uses[name])
		return !asks
	})
	return asks
}

func (p *pkg) isClock(o types.Object) bool {
	f, ok := o.(*types.Func)
	return o != nil && p.clock[o] ||
		ok && slices.Contains([]string{"time.Now", "time.Since", "time.Until"}, f.FullName())
}

// exported imports from the compiler's export data.
func exported(root, dir string) (types.Importer, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "./"+dir)
	list.Dir = root
	list.Stderr = os.Stderr
	said, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export ./%s: %w", dir, err)
	}
	paths := map[string]string{}
	for line := range bytes.Lines(said) {
		path, file, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		paths[path] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(paths[path]) }
	return importer.ForCompiler(token.NewFileSet(), "gc", open), nil
}
