package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// report is results.md: of each scenario what its last run wrote. results.json keeps it, so that a
// run of some scenarios, or one that is broken off, leaves the others as they were.
type report struct {
	mu     sync.Mutex
	papers map[string]*paper // by scenario
}

func (p *report) read(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, "results.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &p.papers)
}

func (p *report) put(scenario string, of *paper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.papers == nil {
		p.papers = map[string]*paper{}
	}
	p.papers[scenario] = of
}

// write writes the page, and what stands beside it.
func (p *report) write(folder string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p.papers, "", "\t")
	if err != nil {
		return err
	}
	files := map[string]string{"results.json": string(text) + "\n", "results.md": p.markdown()}
	for _, of := range p.papers {
		for name, text := range of.files {
			files[name] = text
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *report) markdown() string {
	var b strings.Builder
	b.WriteString("# What was measured\n\nWritten by the runs themselves; [BENCHMARKS.md](../BENCHMARKS.md) says how to read it. " +
		"Only ratios mean anything elsewhere.\nEach part says by which run: a ratio is of one run.\n\n## Targets\n\n")
	b.WriteString(p.targets())
	for _, s := range scenarios {
		of := p.papers[s.name]
		if of == nil {
			continue
		}
		title, rest, _ := strings.Cut(strings.TrimPrefix(of.Body, "\n"), "\n")
		fmt.Fprintf(&b, "\n%s\n\n`%s`, %s, took %s, load average at the end %s.\n%s; %s.\n%s", title,
			of.Command, of.Began.Format("2006-01-02 15:04 MST"), of.Took, of.Load, of.Server, of.Client, rest)
	}
	return b.String()
}

// targets is the table of what was promised, and what came out.
func (p *report) targets() string {
	var b strings.Builder
	b.WriteString("| target | want | got | | measured |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range scenarios {
		of := p.papers[s.name]
		if of == nil {
			continue
		}
		for _, t := range of.Targets {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.What, t.Want, t.Got, t.Verdict, of.Began.Format("2006-01-02"))
		}
	}
	return b.String()
}

func TestARunOfSomeScenariosLeavesTheOthers(t *testing.T) {
	folder := t.TempDir()
	wrote := func(scenario, body string) string {
		var r report
		require.NoError(t, r.read(folder))
		p := newPaper()
		p.section(body)
		p.promise("the cost of "+scenario, "%.0f", 1, 2)
		p.end()
		r.put(scenario, p)
		require.NoError(t, r.write(folder))
		text, err := os.ReadFile(filepath.Join(folder, "results.md"))
		require.NoError(t, err)
		return string(text)
	}
	wrote("storm", "Storm, old")
	wrote("sweep", "Sweep")
	page := wrote("storm", "Storm, new")
	require.NotContains(t, page, "Storm, old")
	require.Regexp(t, `(?s)the cost of sweep.*the cost of storm.*## Sweep\n.*## Storm, new\n`, page)
	require.Equal(t, 1, strings.Count(page, "the cost of storm"))
}
