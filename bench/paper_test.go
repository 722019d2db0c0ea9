package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// paper is what a run writes: a page of tables, and plots and prices beside it.
type paper struct {
	began   time.Time
	server  string // that all was measured on, unless a table says otherwise
	body    strings.Builder
	targets []target
	files   map[string]string // that stand beside the page, by name
}

// target is what was promised, and what came out.
type target struct {
	what, want, got string
	verdict         string
}

func newPaper() *paper { return &paper{began: time.Now().UTC(), files: map[string]string{}} }

// append takes over what stands on another paper.
func (p *paper) append(o *paper) {
	p.server = cmp.Or(p.server, o.server)
	p.body.WriteString(o.body.String())
	p.targets = append(p.targets, o.targets...)
	maps.Copy(p.files, o.files)
}

func (p *paper) section(title string) { fmt.Fprintf(&p.body, "\n## %s\n", title) }

func (p *paper) say(format string, args ...any) {
	fmt.Fprintf(&p.body, "\n"+strings.TrimSpace(format)+"\n", args...)
}

func (p *paper) table(head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(&p.body, "| %s |\n", strings.Join(cells, " | ")) }
	p.body.WriteByte('\n')
	line(head)
	line(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, row := range rows {
		line(row)
	}
}

// plot puts a picture here.
func (p *paper) plot(name, title, svg string) {
	p.files[name+".svg"] = svg
	fmt.Fprintf(&p.body, "\n![%s](%s.svg)\n", title, name)
}

// promise says whether got is at most limit; both are written by format.
func (p *paper) promise(what, format string, got, limit float64) {
	verdict := "met"
	if !(got <= limit) {
		verdict = "**missed**"
	}
	p.targets = append(p.targets, target{what, "≤ " + fmt.Sprintf(format, limit), fmt.Sprintf(format, got), verdict})
}

// promiseMore is promise for what must be at least limit.
func (p *paper) promiseMore(what, format string, got, limit float64) {
	verdict := "met"
	if !(got >= limit) {
		verdict = "**missed**"
	}
	p.targets = append(p.targets, target{what, "≥ " + fmt.Sprintf(format, limit), fmt.Sprintf(format, got), verdict})
}

func (p *paper) notRun(what, want, why string) {
	p.targets = append(p.targets, target{what, want, why, "not run"})
}

func (p *paper) markdown() string { return p.head() + p.body.String() }

// head is the page up to the scenarios.
func (p *paper) head() string {
	var b strings.Builder
	b.WriteString("# What was measured\n\nWritten by the run itself; [BENCHMARKS.md](../BENCHMARKS.md) says how to read it. Only ratios mean anything elsewhere.\n\n")
	fmt.Fprintf(&b, "- command: `%s`\n- date: %s, took %s\n- server: %s\n- client: %s, %s/%s, %d CPUs, load average at the end %s\n",
		command(), p.began.Format("2006-01-02 15:04 MST"), time.Since(p.began).Round(time.Second), p.server,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load())
	b.WriteString("\n## Targets\n\n| target | want | got | |\n| --- | --- | --- | --- |\n")
	for _, t := range p.targets {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.what, t.want, t.got, t.verdict)
	}
	return b.String()
}

// command is how this run can be had again, but for where it writes.
func command() string {
	if *sizeFlag == smoke {
		return "go test ./bench/ (sizes at which numbers mean nothing)"
	}
	words := []string{"make bench"}
	var args []string
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(arg, "-test.") && !strings.HasPrefix(arg, "-out") && arg != "-size=default" {
			args = append(args, arg)
		}
	}
	if len(args) > 0 {
		words = append(words, fmt.Sprintf("ARGS=%q", strings.Join(args, " ")))
	}
	return strings.Join(words, " ")
}

// load says how busy the machine was, where that can be known.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

func (p *paper) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "results.md"), []byte(p.markdown()), 0o644)
}

// kind is what a way is measured for.
type kind string

const (
	floor kind = "floor"
	peer  kind = "peer"
	ours  kind = "ours"
)

// way is one way to do a scenario's work: a row.
type way struct {
	name   string
	kind   kind
	rounds int // 0: as many as asked for; the dear ones are measured less often
	run    func() cost
}

// result is what came of a way.
type result struct {
	way
	costs               []cost
	cpuRatio, wallRatio float64 // to the floor of the same round, medians
	low, high           float64 // of the CPU's ratios
}

// often compares work on so many entries in more rounds, if a round takes about a second.
func (r *rig) often(n int, ways ...way) []result {
	if n <= 100_000 {
		return r.pairs(ways...)
	}
	return r.compare(ways...)
}

// compare runs the ways in turn, round after round, forth and back, so that whatever else the
// machine does meets all of them. The first is the floor.
func (r *rig) compare(ways ...way) []result {
	results := make([]result, len(ways))
	for i, w := range ways {
		results[i].way = w
	}
	for round := range r.rounds {
		for i := range ways {
			if round%2 == 1 {
				i = len(ways) - 1 - i
			}
			if w := &results[i]; w.way.rounds == 0 || round < w.way.rounds {
				w.costs = append(w.costs, w.run())
			}
		}
	}
	for i := range results {
		w := &results[i]
		var cpu, wall []float64
		for round, c := range w.costs {
			base := results[0].costs[round]
			cpu = append(cpu, float64(c.perEntry(c.cpu))/math.Max(1, float64(base.perEntry(base.cpu))))
			wall = append(wall, float64(c.perEntry(c.wall))/math.Max(1, float64(base.perEntry(base.wall))))
		}
		w.cpuRatio, w.wallRatio = median(cpu), median(wall)
		w.low, w.high = cpu[0], cpu[0]
		for _, f := range cpu {
			w.low, w.high = min(w.low, f), max(w.high, f)
		}
	}
	return results
}

// mid is the round that was in the middle by CPU.
func (w result) mid() cost {
	cpus := make([]time.Duration, len(w.costs))
	for i, c := range w.costs {
		cpus[i] = c.cpu
	}
	m := median(cpus)
	for _, c := range w.costs {
		if c.cpu == m {
			return c
		}
	}
	return w.costs[0]
}

// medianOf is a median over the rounds.
func (w result) medianOf(f func(cost) float64) float64 {
	var values []float64
	for _, c := range w.costs {
		values = append(values, f(c))
	}
	return median(values)
}

// leastOf is the least of the rounds: of a longest time, whose noise only adds.
func (w result) leastOf(f func(cost) float64) float64 {
	least := f(w.costs[0])
	for _, c := range w.costs[1:] {
		least = min(least, f(c))
	}
	return least
}

// costs writes the table that most scenarios end in.
func (p *paper) costs(results []result) {
	head := []string{"way", "", "Redis CPU", "per entry", "× floor (range)", "wall", "× floor", "entries/s", "bytes/entry in, out", "longest call"}
	var rows [][]string
	for _, w := range results {
		c := w.mid()
		wall := time.Duration(w.medianOf(func(c cost) float64 { return float64(c.wall) }))
		n := float64(max(1, c.n))
		rows = append(rows, []string{
			w.name, string(w.kind), brief(c.cpu), brief(c.perEntry(c.cpu)), fmt.Sprintf("%.2f (%.2f–%.2f)", w.cpuRatio, w.low, w.high),
			brief(wall), fmt.Sprintf("%.2f", w.wallRatio), digits(n / wall.Seconds()),
			fmt.Sprintf("%.0f, %.0f", float64(c.in)/n, float64(c.out)/n), fmt.Sprintf("%s %s", brief(c.longest), c.which),
		})
	}
	p.table(head, rows)
	for _, w := range results {
		if w.kind == ours {
			p.say("Where the time of *%s* went: %s.", w.name, w.mid().dearest())
		}
	}
}
