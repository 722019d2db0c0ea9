package docs

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
)

// pages are the Markdown files of the repository, by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	walk(t, ".md", func(name, text string) { all[name] = text })
	require.Contains(t, all, "README.md")
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	require.NoError(t, err)
	return string(text)
}

const heading = `(?m)^#+ +(.+)$`

// anchors are the headings of a page, as links name them.
func anchors(text string) []string {
	var all []string
	for _, found := range regexp.MustCompile(heading).FindAllStringSubmatch(prose(text), -1) {
		name := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
				return unicode.ToLower(c)
			}
			return -1
		}, found[1])
		all = append(all, name)
	}
	return all
}

// prose is a page with an empty line in place of each line of code.
func prose(text string) string {
	code := false
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			b.WriteString(line)
			continue
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// alerts is the file of alerts, for Prometheus.
const alerts = "deploy/prometheus/alerts.yml"

// docsAt is where alerts find the manual.
const docsAt = "https://github.com/rollcall-redis/rollcall/blob/main/"

// runbook is the page with what to do about each alert.
const runbook = "docs/runbook.md"

func TestEachAlertLinksToItsHeadingInTheRunbook(t *testing.T) {
	t.Parallel()
	rules := strings.Split(read(t, alerts), "- alert: ")[1:]
	require.GreaterOrEqual(t, len(rules), 15)
	for _, rule := range rules {
		name, rest, _ := strings.Cut(rule, "\n")
		anchor := strings.ToLower(name)
		require.Contains(t, anchors(read(t, runbook)), anchor, "%s has no heading for the alert %s", runbook, name)
		require.Regexp(t, `labels: \{ severity: (critical|warning|info) \}\n`, rest, name)
		require.Contains(t, rest, "summary: ", name)
		require.Contains(t, rest, "runbook_url: "+docsAt+runbook+"#"+anchor+"\n", name)
	}
}

func TestAlertsAskForMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	known := metricspage.Names()
	asked, values := 0, regexp.MustCompile(`"[^"]*"`)                // of labels
	metricName := regexp.MustCompile(`\b([a-z]+(?:_[a-z]+)+)\b[^(]`) // a name before ( is a function
	for _, expr := range regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(read(t, alerts), -1) {
		for _, found := range metricName.FindAllStringSubmatch(values.ReplaceAllString(expr[1], ""), -1) {
			name := found[1]
			asked++
			require.Contains(t, known, strings.TrimSuffix(name, "_bucket"), "an alert")
		}
	}
	require.GreaterOrEqual(t, asked, 15)
}

// The reasons are those that the janitor counts, and two that the witness has no name for.
func TestEachHoldReasonHasAHeadingInTheRunbook(t *testing.T) {
	t.Parallel()
	headings := anchors(read(t, runbook))
	reasons := holdReasons(t)
	require.Contains(t, reasons, "gap")
	for _, reason := range append(reasons, "unreadable", "unknown") {
		require.Contains(t, headings, reason, "%s has no heading for the hold reason %s", runbook, reason)
	}
}

// A heading of the runbook is there once, and is that of an alert or of what the programs say.
func TestTheRunbookHasNoHeadingThatNothingNames(t *testing.T) {
	t.Parallel()
	named := strings.ToLower(read(t, alerts))
	walk(t, ".go", func(name, text string) {
		if !strings.HasSuffix(name, "_test.go") {
			named += text
		}
	})
	seen := map[string]bool{}
	for _, section := range strings.Split(read(t, runbook), "\n### ")[1:] {
		heading, _, _ := strings.Cut(section, "\n")
		require.False(t, seen[heading], "%s is there twice", heading)
		seen[heading] = true
		anchor := strings.ToLower(heading)
		if !slices.Contains(append(holdReasons(t), "unknown", "most", "refused"), anchor) { // of a finding with that name
			require.Contains(t, named, "runbook.md#"+anchor, "nothing leads to %s", heading)
		}
	}
}

// What the programs say may name a heading, as in "runbook.md#gap". That has to be there.
func TestWhatProgramsSayLeadsToHeadingsThatThereAre(t *testing.T) {
	t.Parallel()
	named, count := regexp.MustCompile(`\b([a-z-]+\.md)#([a-z_-]+)`), 0
	served := map[string]string{} // the pages of docs and its folders, by the end of the name
	for name, text := range pages(t) {
		if strings.HasPrefix(name, "docs/") {
			served[path.Base(name)] = text
		}
	}
	walk(t, ".go", func(name, text string) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			count++
			require.Contains(t, anchors(served[found[1]]), found[2], "%s says %s", name, found[0])
		}
	})
	require.Positive(t, count)
}

func TestEachHeadingOfTheRunbookSaysMeaningImpactLookAndDo(t *testing.T) {
	t.Parallel()
	sections := strings.Split(read(t, runbook), "\n### ")[1:]
	require.Greater(t, len(sections), 40)
	for _, section := range sections {
		name, text, _ := strings.Cut(section, "\n")
		text = strings.ReplaceAll(text, "*Look and do*", "*Look* *Do*")
		parts := []string{"*Meaning*", "*Look*", "*Do*"}
		if name != strings.ToLower(name) { // all hold reasons have one impact
			parts = append(parts, "*Impact*")
		}
		for _, part := range parts {
			require.Contains(t, text, part, name)
		}
	}
}

// longPages may be longer: nobody reads them from top to bottom.
var longPages = []string{
	runbook, "docs/operate.md", "docs/reference/metrics.md", "docs/devices.md", "docs/orphan-rules.md", "docs/orphans.md",
	"docs/availability.md",
}

func TestNoPageIsLong(t *testing.T) {
	t.Parallel()
	for name, text := range pages(t) {
		most := 280
		if name == "README.md" {
			most = 120
		}
		if !slices.Contains(longPages, name) {
			require.LessOrEqual(t, strings.Count(text, "\n"), most, "%s is longer than a reader bears", name)
		}
	}
}

func TestProseHasLinesOfAtMostAHundredColumns(t *testing.T) {
	t.Parallel()
	target := regexp.MustCompile(`\]\([^)]*\)|https?://\S+`)
	for name, text := range pages(t) {
		nr := 0
		for line := range strings.Lines(prose(text)) {
			nr++
			if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "|") {
				width := utf8.RuneCountInString(target.ReplaceAllString(line, ""))
				require.LessOrEqual(t, width, 100, "%s:%d", name, nr)
			}
		}
	}
}

func TestLinksLeadToPagesAndHeadingsThatThereAre(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	count := 0
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(prose(text), -1) {
			to, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			count++
			file := name
			if to != "" {
				file = path.Join(path.Dir(name), to)
				_, err := os.Stat("../../" + file)
				require.NoError(t, err, "%s links to %s", name, found[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(all[file]), anchor, "%s links to %s", name, found[1])
			}
		}
	}
	require.Greater(t, count, 100)
}

func TestADoorLeadsToEachPage(t *testing.T) {
	t.Parallel()
	const index = "docs/README.md"
	doors := read(t, index)
	require.LessOrEqual(t, strings.Count(doors, "\n"), 70)
	for _, door := range []string{"embed", "operate", "clean-up", "availability"} {
		require.Contains(t, anchors(doors), door)
		require.Contains(t, read(t, "README.md"), index+"#"+door)
	}
	for name := range pages(t) {
		if page, ok := strings.CutPrefix(name, "docs/"); ok && name != index {
			require.Contains(t, doors, "]("+page+")", "%s leads nobody to %s", index, page)
		}
	}
}
