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

// slower is by how much a mutant may make tests slower. Beyond that, and the runner's patience, they
// hang.
const slower = 4

// runner runs tests of changed sources.
type runner struct {
	root, temp string
	patience   time.Duration
	usual      map[string]time.Duration // what a package's tests take unchanged
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
			r.usual[dir] = 10 * time.Minute
			begun := time.Now()
			outcome, test, err := r.test(ctx, temp, dir, "")
			if err == nil && (outcome == hung || outcome == failed && r.again(ctx, temp, dir, test)) {
				err = fmt.Errorf("the tests of %s %s unchanged: %s", dir, outcome, test)
			}
			if err != nil {
				r.close()
				return nil, err
			}
			r.usual[dir] = time.Since(begun)
			fmt.Fprintf(out, "unchanged: %s passes in %s\n", dir, r.usual[dir].Round(100*time.Millisecond))
		}
	}
	return r, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.temp) }

// try tests a mutant: with the tests of its package, then with those of the packages that rest on
// it, until one fails. A failure counts if the failed test fails a second time, alone, so that a test
// that fails at times does not count as one that notices. A crash outside of any test counts at
// once. Tests that do not end have noticed too.
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
		outcome, test, err := r.test(ctx, dir, pkg, "")
		switch {
		case ctx.Err() != nil:
			return result{mutant: m, verdict: broken}
		case err != nil && i == 0:
			return result{mutant: m, verdict: unfit}
		case err != nil: // an exported constant that a switch of another package has twice now, for instance
			res.verdict, res.by = caught, "compiler of "+pkg
		case outcome == hung:
			res.verdict, res.by = timedOut, pkg
		case outcome == failed && r.again(ctx, dir, pkg, test):
			res.verdict, res.by = caught, strings.TrimSpace(pkg+" "+test)
		case outcome == failed:
			res.by = pkg + " " + test
		}
		if res.verdict != survived {
			res.took = time.Since(begun)
			return res
		}
	}
	res.took = time.Since(begun)
	return res
}

// again tells whether a failure is there the second time too. A crash that names no test is taken as it is.
func (r *runner) again(ctx context.Context, dir, pkg, test string) bool {
	if test == "" {
		return true
	}
	outcome, _, err := r.test(ctx, dir, pkg, test)
	return err != nil || outcome != passed
}

// overlay makes a folder with the changed file, and with the list by which go build takes it instead
// of the file that it was made of.
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

// failure names the first test that failed.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: ([^/\s]+)`)

// test builds and runs the tests of a package, or one of them, with the overlay of dir if there is
// one. An error means that they do not compile. They leave nothing behind: their temporary files are
// in dir, their servers die with them.
func (r *runner) test(ctx context.Context, dir, pkg, only string) (o outcome, test string, err error) {
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
	// In case that the tests' own limit does not end them.
	ctx, cancel := context.WithTimeout(ctx, limit+r.patience)
	defer cancel()
	args := []string{"-test.short", "-test.failfast", "-test.timeout=" + limit.String()}
	if only != "" {
		args = append(args, "-test.run=^"+only+"$")
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
	if name := failure.FindSubmatch(said.Bytes()); name != nil {
		test = string(name[1])
	}
	return failed, test, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sources lists the files of a package that are part of it on this system: Go, and the Lua that it
// embeds.
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
