package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// paper is what the run of a scenario writes: a part of the page.
type paper struct {
	Began   time.Time
	Ended   time.Time
	Server  string // that all was measured on, unless a table says otherwise
	Targets []target
	Body    string
}

// target is what was promised, and what came out.
type target struct {
	What, Want, Got, Verdict string
}

func (p *paper) section(title string) { p.Body += fmt.Sprintf("\n## %s\n", title) }

func (p *paper) say(format string, args ...any) {
	p.Body += fmt.Sprintf("\n"+strings.TrimSpace(format)+"\n", args...)
}

func (p *paper) table(head []string, rows [][]string) {
	line := func(cells []string) { p.Body += fmt.Sprintf("| %s |\n", strings.Join(cells, " | ")) }
	p.Body += "\n"
	line(head)
	line(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, row := range rows {
		line(row)
	}
}

// promise says whether got is at most limit; both are written by format.
func (p *paper) promise(what, format string, got, limit float64) {
	p.judged(what, "≤ "+format, format, got, limit, got <= limit)
}

// promiseMore is promise for what must be at least limit.
func (p *paper) promiseMore(what, format string, got, limit float64) {
	p.judged(what, "≥ "+format, format, got, limit, got >= limit)
}

func (p *paper) judged(what, want, format string, got, limit float64, met bool) {
	verdict := "met"
	if !met {
		verdict = "**missed**"
	}
	p.Targets = append(p.Targets, target{what, fmt.Sprintf(want, limit), fmt.Sprintf(format, got), verdict})
}

// command is how this run can be had again, but for where it writes.
func command() string {
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return strings.HasPrefix(arg, "-test.") || strings.HasPrefix(arg, "-out") || arg == "-size=default"
	})
	if len(args) == 0 {
		return "make bench"
	}
	return fmt.Sprintf("make bench ARGS=%q", strings.Join(args, " "))
}

// write writes the page of a whole run.
func write(file string, papers []*paper) error {
	var b strings.Builder
	b.WriteString("# What was measured\n\nWritten by one run; README.md explains how to read it. " +
		"Only ratios mean anything elsewhere.\n\n")
	load, _ := os.ReadFile("/proc/loadavg") // empty on other systems
	first, last := papers[0], papers[len(papers)-1]
	fmt.Fprintf(&b, "`%s`, %s, took %s, load at the end %s.\n%s; %s, %s/%s, %d CPUs.\n\n## Targets\n\n%s", command(),
		first.Began.Format("2006-01-02 15:04 MST"), last.Ended.Sub(first.Began).Round(time.Second), bytes.TrimSpace(load),
		first.Server, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), targets(papers))
	for _, p := range papers {
		b.WriteString(p.Body)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// targets is the table of what was promised, and what came out.
func targets(papers []*paper) string {
	var b strings.Builder
	b.WriteString("| target | want | got | |\n| --- | --- | --- | --- |\n")
	for _, p := range papers {
		for _, t := range p.Targets {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.What, t.Want, t.Got, t.Verdict)
		}
	}
	return b.String()
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
