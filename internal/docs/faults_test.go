package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chaosRows are the names of all rows of chaos, by its code.
func chaosRows(t *testing.T) []string {
	t.Helper()
	var all []string
	row := regexp.MustCompile(`(?m)^\t+(?:\{\d+, |\{?name: +|\w+\()"([A-Z]\w+)"`)
	walk(t, "_test.go", func(name, code string) {
		if strings.HasPrefix(name, "chaos/") && !strings.Contains(name, "mutant") {
			for _, found := range row.FindAllStringSubmatch(code, -1) {
				all = append(all, found[1])
			}
		}
	})
	require.Greater(t, len(all), 100)
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

// namedBy are pages that name, in a column, the tests and chaos rows that show what they claim, and
// the column that begins these tables.
var namedBy = map[string]string{"docs/reference/faults.md": "fault", "SECURITY.md": "can"}

func TestEachNameOnAPageOfClaimsIsThatOfATestOrAChaosRow(t *testing.T) {
	t.Parallel()
	known := testsAndRows(t)
	isKnown := func(name string) bool {
		begins, more := strings.CutSuffix(name, "*")
		if !more {
			return known[name]
		}
		for row := range known {
			if strings.HasPrefix(row, begins) {
				return true
			}
		}
		return false
	}
	for page, first := range namedBy {
		found := 0
		for _, section := range regexp.MustCompile(`\n##+ `).Split(read(t, page), -1) {
			for _, row := range tableRows(section, first, "shown by") {
				for name := range strings.SplitSeq(row["shown by"], ", ") {
					found++
					require.True(t, isKnown(name), "%s names %q, which is no test and no row, beside %q",
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
	for _, name := range chaosRows(t) {
		known[name] = true
	}
	require.NotContains(t, known, "TestThatNobodyWrote")
	delete(known, "") // a fault without a row
	return known
}
