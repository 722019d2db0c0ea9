package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// slower is how many times slower a mutant may make tests. Beyond that, and the runner's patience,
// they hang.
const slower = 4

type runner struct {
	root, temp string
	patience   time.Duration
	usual      map[string]time.Duration // a package's tests unchanged
}

// newRunner runs the tests unchanged: one that fails already would count as noticing everything.
func newRunner(ctx context.Context, root string, all []mutant, out io.Writer) (*runner, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	r := &runner{root: root, temp: temp, patience: 30 * time.Second, usual: map[string]time.Duration{}}
	for _, m := range all {
		for _, dir := range append([]string{m.target.dir}, m.target.dependents...) {
			if _, known := r.usual[dir]; known {
				continue
			}
			if err := r.unchanged(ctx, dir); err != nil {
				r.close()
				return nil, err
			}
			took := r.usual[dir].Round(100 * time.Millisecond)
			fmt.Fprintf(out, "unchanged: %s passes in %s\n", dir, took)
		}
	}
	return r, nil
}

func (r *runner) unchanged(ctx context.Context, dir string) error {
	r.usual[dir] = 10 * time.Minute
	begun := time.Now()
	outcome, test, err := r.test(ctx, r.temp, dir, "")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case outcome == hung || outcome == failed && r.again(ctx, r.temp, dir, test):
		return fmt.Errorf("the tests of %s %s unchanged: %s", dir, outcome, test)
	}
	r.usual[dir] = time.Since(begun)
	return nil
}

func (r *runner) close() { _ = os.RemoveAll(r.temp) }

// try runs the tests of the mutant's package, then of dependent packages, until one fails. A
// failure counts if one of the failed tests fails again without the others: a flaky test does not
// count. A crash outside of any test counts at once, and so do tests that do not end.
func (r *runner) try(ctx context.Context, m mutant) result {
	begun := time.Now()
	res := result{mutant: m, verdict: survived}
	defer func() { res.took = time.Since(begun) }()
	dir, err := r.overlay(m)
	if err != nil {
		return result{mutant: m, verdict: broken}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, pkg := range append([]string{m.target.dir}, m.target.dependents...) {
		outcome, tests, err := r.test(ctx, dir, pkg, "")
		switch {
		case ctx.Err() != nil:
			return result{mutant: m, verdict: broken}
		case err != nil && i == 0:
			return result{mutant: m, verdict: unfit}
		// for instance an exported constant that a switch of another package has twice now
		case err != nil:
			res.verdict, res.by = caught, "compiler of "+pkg
		case outcome == hung:
			res.verdict, res.by = timedOut, pkg
		case outcome == failed && r.again(ctx, dir, pkg, tests):
			res.verdict, res.by = caught, strings.TrimSpace(pkg+" "+tests)
		case outcome == failed:
			res.by = pkg + " " + tests
		}
		if res.verdict != survived {
			res.took = time.Since(begun)
			return res
		}
	}
	res.took = time.Since(begun)
	return res
}

// A crash without a test's name counts as it is.
func (r *runner) again(ctx context.Context, dir, pkg, tests string) bool {
	if tests == "" {
		return true
	}
	outcome, _, err := r.test(ctx, dir, pkg, tests)
	return err != nil || outcome != passed
}

// overlay lists the changed file for go build.
func (r *runner) overlay(m mutant) (dir string, err error) {
	dir, err = os.MkdirTemp(r.temp, "mutant-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed_"+filepath.Base(m.file))
	text = slices.Concat(text[:m.start], []byte(m.text), text[m.end:])
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600)
}

type outcome string

const (
	passed outcome = "pass"
	failed outcome = "fail"
	hung   outcome = "hang"
)

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// test runs a package's tests, or some of them (A|B), with the overlay of dir if there is one, and
// names those that failed. An error means that they do not compile. They leave nothing behind:
// their temporary files are in dir, their servers die with them.
func (r *runner) test(ctx context.Context, dir, pkg, only string) (o outcome, tests string, err error) {
	binary := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	if _, err := os.Stat(binary); err != nil {
		args := []string{"test", "-c", "-ldflags=-s -w", "-o", binary}
		if list := filepath.Join(dir, "overlay.json"); exists(list) {
			args = append(args, "-overlay", list)
		}
		build := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
		build.Dir = r.root
		if said, err := build.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("build the tests of %s: %w: %s", pkg, err, said)
		}
	}
	limit := slower*r.usual[pkg] + r.patience
	// In case the tests' own limit does not end them.
	ctx, cancel := context.WithTimeout(ctx, limit+r.patience)
	defer cancel()
	// Most tests of the core spend their time waiting, so more run at once than there are
	// processors.
	args := []string{"-test.short", "-test.failfast", "-test.parallel=8", "-test.timeout=" + limit.String()}
	if only != "" {
		args = append(args, "-test.run=^("+only+")$")
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(r.root, pkg)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	ended := bytes.Contains(said.Bytes(), []byte("panic: test timed out after"))
	switch {
	case err == nil:
		return passed, "", nil
	case ended || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return hung, "", nil
	}
	var names []string
	for _, name := range failure.FindAllSubmatch(said.Bytes(), -1) {
		names = append(names, string(name[1]))
	}
	return failed, strings.Join(names, "|"), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sources are Go, and the Lua that it embeds, on this system.
func sources(root, dir string) (files []string, err error) {
	const names = `{{range .GoFiles}}{{.}} {{end}}{{range .EmbedFiles}}{{.}} {{end}}`
	list := exec.Command("go", "list", "-f", names, "./"+dir)
	list.Dir = root
	list.Stderr = os.Stderr
	said, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./%s: %w", dir, err)
	}
	for _, name := range strings.Fields(string(said)) {
		if ext := filepath.Ext(name); ext == ".go" || ext == ".lua" {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}
