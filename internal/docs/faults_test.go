package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fault is a row of the chaos matrix, which has a scenario for each shape of the fault.
type fault struct {
	nr, text  string
	scenarios []string
}

// faults reads the matrix of chaos/README.md, which a test of package chaos compares with the code.
func faults(t *testing.T) []fault {
	t.Helper()
	text, err := os.ReadFile("../../chaos/README.md")
	require.NoError(t, err)
	var all []fault
	for _, cells := range tableRows(string(text), "#", "rows") {
		names := strings.ReplaceAll(cells["rows"], " ●", "")
		all = append(all, fault{cells["#"], cells["fault"], strings.Split(names, ", ")})
	}
	require.Greater(t, len(all), 30)
	return all
}

// tableRows reads the Markdown table that has these columns, as a map from column to cell for each
// row.
func tableRows(text string, columns ...string) []map[string]string {
	var header []string
	var rows []map[string]string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			if rows != nil {
				return rows
			}
			header = nil
		case header == nil:
			header = cells
		case !strings.HasPrefix(line, "|--") && !strings.HasPrefix(line, "| --") && containsAll(header, columns):
			row := make(map[string]string)
			for i := range min(len(cells), len(header)) {
				row[header[i]] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

const measuredMark = "<!-- measured -->\n"

func TestTheFaultPageHasTheFiguresOfTheLastReport(t *testing.T) {
	t.Parallel()
	const page = "../../docs/reference/faults.md"
	report, err := os.ReadFile("../../chaos/REPORT.md")
	require.NoError(t, err)
	rows := tableRows(string(report), "row", "scenario", "evictions")
	require.NotEmpty(t, rows)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), measuredMark)
	require.True(t, ok)

	var b strings.Builder
	wrong := 0
	for _, row := range rows {
		wrong += number(t, row["wrong deletes"])
	}
	fmt.Fprintf(&b, "\nWrong deletes in all rows: %d.\n\n", wrong)
	b.WriteString("| # | fault | rows | evicted | false deaths, healed | new leader after | dead entries gone after | at rest after |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, f := range faults(t) {
		if f.nr == "30" || f.scenarios[0] == "" {
			continue // that at random is judged, and not measured; 36 has no row
		}
		var evicted, dead, healed int
		var leader, clean, rest []time.Duration
		measured := 0
		for _, row := range rows {
			if !slices.Contains(f.scenarios, row["scenario"]) {
				continue
			}
			measured++
			evicted += number(t, row["evictions"])
			one, two, _ := strings.Cut(row["false deaths (healed)"], " (")
			dead, healed = dead+number(t, one), healed+number(t, strings.TrimSuffix(two, ")"))
			leader = append(leader, durations(t, row["new leader p50, max"])...)
			clean = append(clean, durations(t, row["clean p50, max"])...)
			rest = append(rest, durations(t, row["converged"])...)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | ", f.nr, f.text, strings.Join(f.scenarios, ", "))
		if measured == 0 {
			b.WriteString("not in that run | | | | |\n")
			continue
		}
		pair := ""
		if dead > 0 {
			pair = fmt.Sprintf("%d, %d", dead, healed)
		}
		fmt.Fprintf(&b, "%d | %s | %s | %s | %s |\n", evicted, pair, span(leader), span(clean), span(rest))
	}
	same(t, page, before+measuredMark+b.String())
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func durations(t *testing.T, cell string) []time.Duration {
	t.Helper()
	var all []time.Duration
	for text := range strings.SplitSeq(cell, ", ") {
		if text != "" {
			d, err := time.ParseDuration(text)
			require.NoError(t, err)
			all = append(all, d)
		}
	}
	return all
}

// span is the least and the largest of what was measured.
func span(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	least, most := slices.Min(all), slices.Max(all)
	if least == most {
		return least.String()
	}
	return least.String() + " to " + most.String()
}

// namedBy are pages that name, in a column, the tests and chaos rows that show what they claim, and
// the column that begins these tables.
var namedBy = map[string]string{"docs/reference/faults.md": "fault", "docs/threats.md": "can"}

func TestEachNameOnAPageOfClaimsIsThatOfATestOrAChaosRow(t *testing.T) {
	t.Parallel()
	known := testsAndRows(t)
	for page, first := range namedBy {
		found := 0
		for section := range strings.SplitSeq(read(t, page), "\n## ") {
			for _, row := range tableRows(section, first, "shown by") {
				for name := range strings.SplitSeq(row["shown by"], ", ") {
					found++
					require.True(t, known[name], "%s names %q, which is no test and no row, beside %q",
						page, name, row[first])
				}
			}
		}
		require.Greater(t, found, 50, page)
	}
}

// testsAndRows are the names of all tests, and of all rows of chaos.
func testsAndRows(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	walk(t, "_test.go", func(_, code string) {
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(code, -1) {
			known[found[1]] = true
		}
	})
	for _, f := range faults(t) {
		for _, name := range f.scenarios {
			known[name] = true
		}
	}
	for _, part := range []string{"availability", "cluster"} {
		of := read(t, "chaos/"+part+"/README.md") // a test there compares it with the code
		for _, cells := range tableRows(of, "row", "what must hold besides") {
			known[strings.TrimSuffix(cells["row"], " ●")] = true
		}
	}
	require.NotContains(t, known, "TestThatNobodyWrote")
	delete(known, "") // a fault without a row
	return known
}
