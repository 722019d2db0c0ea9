// Command mutate changes the core in small ways, one at a time, runs the tests, and prints the
// changes that no test notices. No source file is touched: the compiler gets the changed text
// through go build's -overlay.
//
// The sample is random; a seed and the same sources give the same one. Each survivor needs a
// person's judgement: either a test is missing, or the change has no consequence.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// enough is the least share that tests have to notice.
const enough = 0.95

// core has the tests of dependent packages, the quick ones first.
var core = []target{
	{dir: "lease", dependents: []string{"janitor"}},
	{dir: "guard", dependents: []string{"registry", "janitor", "cmd/ingest/internal/commands"}},
	{dir: "registry", dependents: []string{"cmd/ingest/internal/commands", "janitor", "cmd/ingest"}},
	{dir: "janitor", dependents: []string{"cmd/ingest/internal/commands", "cmd/ingest"}},
	{dir: "cmd/ingest/internal/commands", dependents: []string{"cmd/ingest"}},
	{dir: "cmd/ingest/internal/gateway", dependents: []string{"cmd/ingest/internal/commands", "cmd/ingest"}},
}

type target struct {
	dir        string
	dependents []string
}

type mutant struct {
	target     target
	file       string // relative to the root
	line       int
	start, end int    // bytes to replace
	text       string // replacement
	from, to   string // for a person
	around     string // the line that contains it
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d  %s  =>  %s", m.file, m.line, m.from, m.to)
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	root := flags.String("root", ".", "the library's folder")
	seed := flags.Uint64("seed", rand.Uint64N(1_000_000), "which sample")
	n := flags.Int("n", 100, "how many mutants that compile")
	only := flags.String("only", "", "change this package only, registry for instance")
	match := flags.String("match", "", "change only what begins so: a file, or file:line")
	jobs := flags.Int("jobs", 2, "mutants at a time")
	list := flags.Bool("list", false, "print the mutants and test none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	all, err := mutants(*root, *only)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool {
		return !strings.HasPrefix(fmt.Sprintf("%s:%d:", m.file, m.line), *match)
	})
	if len(all) == 0 {
		return errors.New("there is nothing to change")
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *list {
		for _, m := range all {
			fmt.Fprintln(out, m)
		}
		return nil
	}
	fmt.Fprintf(out, "seed %d: %d of %d mutants\n", *seed, min(*n, len(all)), len(all))
	r, err := newRunner(ctx, *root, all, out)
	if err != nil {
		return err
	}
	defer r.close()
	return judge(out, sample(ctx, all, *n, *jobs, out, r.try))
}

func mutants(root, only string) (all []mutant, err error) {
	for _, t := range core {
		if only != "" && only != t.dir && only != filepath.Base(t.dir) {
			continue
		}
		files, err := sources(root, t.dir)
		if err != nil {
			return nil, err
		}
		texts, goTexts := map[string]string{}, map[string]string{}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			texts[file] = string(text)
			if strings.HasSuffix(file, ".go") {
				goTexts[file] = string(text)
			}
		}
		imports, err := exported(root, t.dir)
		if err != nil {
			return nil, err
		}
		p, err := newPkg(goTexts, imports)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			var found []mutant
			if strings.HasSuffix(file, ".go") {
				found = goMutants(p, file)
			} else if found, err = luaMutants(texts[file]); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, m := range found {
				m.describe(t, file, texts[file])
				all = append(all, m)
			}
		}
	}
	return all, nil
}

func (m *mutant) describe(t target, file, text string) {
	m.target, m.file, m.line = t, file, 1+strings.Count(text[:m.start], "\n")
	m.from, m.to = short(text[m.start:m.end]), short(m.text)
	m.around = around(text, m.start)
	if strings.TrimSpace(m.text) == "" {
		m.to = "(nothing)"
	}
}

func around(text string, at int) string {
	before, after := text[:at], text[at:]
	first, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(before[strings.LastIndex(before, "\n")+1:] + first)
}

func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > 90 {
		s = string(runes[:87]) + "..."
	}
	return s
}

type result struct {
	mutant
	verdict verdict
	by      string // the tests that noticed it; of a survivor: those that failed only once
	took    time.Duration
}

type verdict string

const (
	caught   verdict = "caught"
	timedOut verdict = "time-out" // noticed as well
	survived verdict = "SURVIVED"
	unfit    verdict = "unfit" // does not compile: another one is drawn
	broken   verdict = "stopped"
)

// sample tries mutants in order until n were fit. The choice does not depend on jobs.
func sample(
	ctx context.Context, all []mutant, n, jobs int, out io.Writer, try func(context.Context, mutant) result,
) (results []result) {
	var mu sync.Mutex
	draw := func() (m mutant, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(all) == 0 || ctx.Err() != nil {
			return mutant{}, false
		}
		m, all = all[0], all[1:]
		return m, true
	}
	report := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		results = append(results, r)
		took := r.took.Round(100 * time.Millisecond)
		fmt.Fprintf(out, "%3d  %-8s  %s  [%s %s]\n", len(results), r.verdict, r.mutant, short(r.by), took)
	}
	places := make(chan struct{}, n)
	for range n {
		places <- struct{}{}
	}
	close(places)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for range places { // kept until something fit is found
				for m, ok := draw(); ok; m, ok = draw() {
					if r := try(ctx, m); r.verdict == broken {
						return
					} else if r.verdict != unfit {
						report(r)
						break
					}
				}
			}
		})
	}
	workers.Wait()
	return results
}

// judge prints the survivors, and whether the tests noticed enough.
func judge(out io.Writer, results []result) error {
	count := map[verdict]int{}
	var survivors []string
	for _, r := range results {
		count[r.verdict]++
		if r.verdict == survived {
			s := r.String()
			if !strings.HasPrefix(r.around, r.from) {
				s += "  in  " + short(r.around)
			}
			if r.by != "" {
				s += "  (failed once: " + short(r.by) + ")"
			}
			survivors = append(survivors, s)
		}
	}
	slices.Sort(survivors)
	noticed := count[caught] + count[timedOut]
	fmt.Fprintf(out, "\n%d mutants: %d caught by a test, %d by a time-out, %d survived\n",
		len(results), count[caught], count[timedOut], count[survived])
	for _, s := range survivors {
		fmt.Fprintln(out, " ", s)
	}
	if len(results) == 0 {
		return errors.New("no mutant was tested")
	}
	if float64(noticed) < enough*float64(len(results)) {
		return fmt.Errorf("noticed %d of %d, want %.0f %%", noticed, len(results), enough*100)
	}
	return nil
}
