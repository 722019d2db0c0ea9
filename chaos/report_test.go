package chaos

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// result is a scenario's row in the report.
type result struct {
	row      int
	scenario string // "": nothing was judged
	failed   bool
	counts   [len(counted)]int
	// The slowest new leader and the slowest cleaning up, and how long after the end of the faults
	// nothing changed any more.
	times   [3]time.Duration
	remarks []string
}

// counted are the columns of counts. Wrong deletes are those of C1 and C2; fenced and held are
// scripts that were refused, as the proxies saw them.
var counted = [...]string{"hits", "terms", "evictions", "wrong deletes", "fenced", "held", "false deaths", "healed"}

const evictionsColumn, wrongColumn = 2, 3

var (
	resultsMu sync.Mutex
	results   []result
	begun     = time.Now()
)

// report takes a scenario's row.
func report(r result) {
	resultsMu.Lock()
	defer resultsMu.Unlock()
	results = append(results, r)
}

// note takes from a verdict what the report says of this scenario.
func (w *environment) note(v *judge.Verdict) {
	w.noting.Lock()
	defer w.noting.Unlock()
	hits, fenced, held := int(w.Struck.Load()), 0, 0
	if w.fault != nil {
		hits = w.fault.hits()
	}
	for _, r := range w.All {
		fenced += r.Proxy.Verdicts()["FENCED"]
		held += r.Proxy.Verdicts()["HELD"]
	}
	w.result.row, w.result.scenario = w.row.nr, w.row.name
	w.result.counts = [...]int{hits, len(v.Terms), v.Evicted(""), v.WrongDeletes(), fenced, held, v.FalseDeaths, v.Healed}
	w.result.times = [3]time.Duration{judge.Percentile(v.NewLeader, 100), judge.Percentile(v.Clean, 100)}
	if !w.over.IsZero() {
		w.result.times[2] = v.Quiet(w.over)
	}
}

// remark keeps what was measured and has no column.
func (w *environment) remark(format string, args ...any) {
	w.Helper()
	text := fmt.Sprintf(format, args...)
	w.T.Log(text)
	w.noting.Lock()
	defer w.noting.Unlock()
	w.result.remarks = append(w.result.remarks, text)
}

// writeReport prints the table of all scenarios, and writes it into the folder that ROLLCALL_REPORT
// names.
func writeReport() {
	resultsMu.Lock()
	defer resultsMu.Unlock()
	if len(results) == 0 {
		return
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.row, b.row) })
	var sum result
	table := "| row | scenario | " + strings.Join(counted[:], " | ") + " | slowest new leader | slowest clean | converged | |\n" +
		strings.Repeat("|---", 6+len(counted)) + "|\n"
	for _, r := range results {
		table += r.line(fmt.Sprint(r.row))
		for i, n := range r.counts {
			sum.counts[i] += n
		}
	}
	sum.scenario = fmt.Sprintf("%d scenarios in %s", len(results), time.Since(begun).Round(time.Second))
	table += sum.line("")
	for _, r := range results {
		for _, remark := range r.remarks {
			table += fmt.Sprintf("\n- %s: %s", r.scenario, remark)
		}
	}
	fmt.Println(table)
	if err := harness.Record("one server", sum.counts[evictionsColumn], sum.counts[wrongColumn]); err != nil {
		fmt.Println("chaos: not recorded:", err)
	}
	dir := os.Getenv("ROLLCALL_REPORT")
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "report.md"), []byte(table+"\n"), 0o644)
	}
	if err != nil {
		fmt.Println("chaos: the report is not written:", err)
	}
}

func (r result) line(row string) string {
	cells := []string{row, r.scenario}
	for _, n := range r.counts {
		cells = append(cells, fmt.Sprint(n))
	}
	for _, d := range r.times {
		cells = append(cells, d.Round(10*time.Millisecond).String())
	}
	verdict := "ok"
	if r.failed {
		verdict = "FAILED"
	}
	return "| " + strings.Join(append(cells, verdict), " | ") + " |\n"
}
