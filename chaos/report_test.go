package chaos

import (
	"cmp"
	"encoding/json"
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
	Row       int    `json:"row"`
	Scenario  string `json:"scenario"`
	Seed      uint64 `json:"seed"`
	Hits      int    `json:"hits"` // of the fault
	Terms     int    `json:"terms"`
	Evictions int    `json:"evictions"`
	Wrong     int    `json:"wrong_deletes"` // C1 and C2
	// scripts that the fence refused, as the proxies saw them
	Fenced       int           `json:"fenced"`
	Held         int           `json:"held"` // and the witness
	FalseDeaths  int           `json:"false_deaths"`
	Healed       int           `json:"false_deaths_healed"`
	NewLeaderP50 time.Duration `json:"new_leader_p50_ns"`
	NewLeaderMax time.Duration `json:"new_leader_max_ns"`
	CleanP50     time.Duration `json:"clean_p50_ns"`
	CleanMax     time.Duration `json:"clean_max_ns"`
	Converged    time.Duration `json:"converged_ns"` // after the end of the faults
	Took         time.Duration `json:"took_ns"`
	Failed       bool          `json:"failed"`
	Remarks      []string      `json:"remarks,omitempty"`
	// Violations by check, and what had happened until the first: evictions, and time since the
	// scenario began.
	Violations     map[string]int `json:"violations,omitempty"`
	FirstEvictions int            `json:"first_evictions,omitempty"`
	FirstAfter     time.Duration  `json:"first_after_ns,omitempty"`
}

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
func (w *environment) note(v *judge.Verdict, found []judge.Violation) {
	w.noting.Lock()
	defer w.noting.Unlock()
	w.result.Row, w.result.Scenario, w.result.Seed = w.row.nr, w.row.name, w.Seed
	w.result.Hits = int(w.Struck.Load())
	if w.fault != nil {
		w.result.Hits = w.fault.hits()
	}
	w.result.Terms, w.result.Evictions, w.result.Wrong = len(v.Terms), v.Evicted(""), v.WrongDeletes()
	w.result.FalseDeaths, w.result.Healed = v.FalseDeaths, v.Healed
	w.result.NewLeaderP50, w.result.NewLeaderMax = judge.Percentile(v.NewLeader, 50), judge.Percentile(v.NewLeader, 100)
	w.result.CleanP50, w.result.CleanMax = judge.Percentile(v.Clean, 50), judge.Percentile(v.Clean, 100)
	if !w.over.IsZero() {
		w.result.Converged = v.Quiet(w.over)
	}
	w.result.Fenced, w.result.Held = 0, 0
	for _, r := range w.All {
		w.result.Fenced += r.Proxy.Verdicts()["FENCED"]
		w.result.Held += r.Proxy.Verdicts()["HELD"]
	}
	w.result.Took = time.Since(w.began)
	w.violated(v, found)
}

// violated counts what the judge found.
func (w *environment) violated(v *judge.Verdict, found []judge.Violation) {
	var first time.Time
	w.result.Violations = make(map[string]int)
	for _, one := range found {
		w.result.Violations[one.Check]++
		if first.IsZero() || one.At.Before(first) {
			first = one.At
		}
	}
	if first.IsZero() {
		return
	}
	w.result.FirstAfter, w.result.FirstEvictions = first.Sub(w.began), 0
	for _, b := range v.Batches {
		if !b.At.After(first) {
			w.result.FirstEvictions += len(b.IMEIs)
		}
	}
}

// remark keeps what was measured and has no column.
func (w *environment) remark(format string, args ...any) {
	w.T.Helper()
	text := fmt.Sprintf(format, args...)
	w.T.Log(text)
	w.noting.Lock()
	defer w.noting.Unlock()
	w.result.Remarks = append(w.result.Remarks, text)
}

// writeReport prints the table of all scenarios, and writes it as JSON and Markdown into the folder
// that ROLLCALL_REPORT names.
func writeReport() {
	resultsMu.Lock()
	defer resultsMu.Unlock()
	if len(results) == 0 {
		return
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.Row, b.Row) })
	table := markdown(results)
	fmt.Print(table)
	evictions, wrong := 0, 0
	for _, r := range results {
		evictions += r.Evictions
		wrong += r.Wrong
	}
	if err := harness.Record("one server", evictions, wrong); err != nil {
		fmt.Println("chaos: not recorded:", err)
	}
	dir := os.Getenv("ROLLCALL_REPORT")
	if dir == "" {
		return
	}
	text, err := json.MarshalIndent(results, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "report.md"), []byte(table), 0o644)
	}
	if err != nil {
		fmt.Println("chaos: the report is not written:", err)
	}
}

func markdown(rows []result) string {
	var b strings.Builder
	b.WriteString("| row | scenario | hits | terms | evictions | wrong deletes | fenced | held | false deaths (healed) | new leader p50, max | clean p50, max | converged | |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	var sum result
	for _, r := range rows {
		verdict := "ok"
		if r.Failed {
			verdict = "FAILED"
		}
		fmt.Fprintf(&b, "| %d | %s | %d | %d | %d | %d | %d | %d | %d (%d) | %s | %s | %s | %s |\n", r.Row, r.Scenario, r.Hits, r.Terms, r.Evictions,
			r.Wrong, r.Fenced, r.Held, r.FalseDeaths, r.Healed, pair(r.NewLeaderP50, r.NewLeaderMax), pair(r.CleanP50, r.CleanMax), short(r.Converged), verdict)
		sum.Hits += r.Hits
		sum.Terms += r.Terms
		sum.Evictions += r.Evictions
		sum.Wrong += r.Wrong
		sum.Fenced += r.Fenced
		sum.Held += r.Held
		sum.FalseDeaths += r.FalseDeaths
		sum.Healed += r.Healed
	}
	fmt.Fprintf(&b, "| | %d scenarios in %s | %d | %d | %d | %d | %d | %d | %d (%d) | | | | |\n", len(rows), time.Since(begun).Round(time.Second),
		sum.Hits, sum.Terms, sum.Evictions, sum.Wrong, sum.Fenced, sum.Held, sum.FalseDeaths, sum.Healed)
	for _, r := range rows {
		for _, remark := range r.Remarks {
			fmt.Fprintf(&b, "\n- %s: %s", r.Scenario, remark)
		}
	}
	b.WriteString("\n")
	return b.String()
}

func pair(a, b time.Duration) string {
	if b == 0 {
		return ""
	}
	return short(a) + ", " + short(b)
}

func short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(10 * time.Millisecond).String()
}
