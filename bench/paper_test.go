package bench

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"
)

// paper is what the run of a scenario writes: a part of the page.
type paper struct {
	Began   time.Time
	Ended   time.Time
	Command string // how it can be had again
	Client  string
	Server  string // that all was measured on, unless a table says otherwise
	Load    string // how busy the machine was at the end
	Targets []target
	Body    string
}

// target is what was promised, and what came out.
type target struct {
	What, Want, Got, Verdict string
}

func newPaper() *paper {
	client := fmt.Sprintf("%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return &paper{Began: time.Now().UTC(), Command: command(), Client: client}
}

// end notes what is known at the end of the run.
func (p *paper) end() {
	p.Ended, p.Load = time.Now().UTC(), load()
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
	verdict := "met"
	if !(got <= limit) {
		verdict = "**missed**"
	}
	p.Targets = append(p.Targets, target{what, "≤ " + fmt.Sprintf(format, limit), fmt.Sprintf(format, got), verdict})
}

// promiseMore is promise for what must be at least limit.
func (p *paper) promiseMore(what, format string, got, limit float64) {
	verdict := "met"
	if !(got >= limit) {
		verdict = "**missed**"
	}
	p.Targets = append(p.Targets, target{what, "≥ " + fmt.Sprintf(format, limit), fmt.Sprintf(format, got), verdict})
}

func (p *paper) notRun(what, want, why string) {
	p.Targets = append(p.Targets, target{what, want, why, "not run"})
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
