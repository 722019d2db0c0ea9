package deploy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/deploy/internal/grafana"
)

func dashboard(t *testing.T) grafana.Dashboard {
	t.Helper()
	d, err := grafana.Read("grafana/dashboard.json")
	require.NoError(t, err)
	return d
}

// knownPanels are types that each Grafana has.
var knownPanels = []string{"row", "stat", "state-timeline", "table", "timeseries"}

// knownUnits are ids of Grafana's units.
var knownUnits = []string{"none", "short", "s", "dateTimeFromNow", "percentunit", "ops", "reqps", "Bps",
	"bytes"}

// colours are names that each Grafana knows.
var colours = []string{"green", "orange", "red", "transparent"}

func TestTheDashboardIsOneThatGrafanaTakes(t *testing.T) {
	t.Parallel()
	d := dashboard(t)
	require.Equal(t, "rollcall", d.UID)
	require.Equal(t, 39, d.SchemaVersion)
	ids := make(map[int]bool)
	for _, p := range d.All() {
		require.Contains(t, knownPanels, p.Type, p.Title)
		require.Positive(t, p.ID, p.Title)
		require.False(t, ids[p.ID], "%s: its id stands twice", p.Title)
		ids[p.ID] = true
		if p.Type == "row" {
			require.Empty(t, p.Targets, p.Title)
			require.Equal(t, p.Collapsed, len(p.Panels) > 0, "%s: only a closed row has panels in it",
				p.Title)
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.NotNil(t, p.Datasource, p.Title)
		require.NotNil(t, p.FieldConfig, p.Title)
		require.Contains(t, knownUnits, p.FieldConfig.Defaults.Unit, p.Title)
		steps := p.FieldConfig.Defaults.Thresholds.Steps
		require.NotEmpty(t, steps, p.Title)
		require.Nil(t, steps[0].Value, p.Title)
		for i, s := range steps {
			require.Contains(t, colours, s.Color, p.Title)
			require.True(t, i == 0 || i == 1 || *steps[i-1].Value < *s.Value, p.Title)
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			require.False(t, refs[q.RefID], "%s: %s stands twice", p.Title, q.RefID)
			refs[q.RefID] = true
			require.NotEmpty(t, q.Expr, p.Title)
		}
	}
}

func TestNoPanelOfTheDashboardLiesOnAnother(t *testing.T) {
	t.Parallel()
	d := dashboard(t)
	check := func(panels []grafana.Panel) {
		taken := make(map[[2]int]string)
		for _, p := range panels {
			g := p.GridPos
			require.True(t, g.X >= 0 && g.W > 0 && g.X+g.W <= 24 && g.H > 0 && g.Y >= 0, p.Title)
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					require.Empty(t, taken[[2]int{x, y}], "%s lies on it", p.Title)
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
	check(d.Panels)
	for _, row := range d.Panels {
		check(row.Panels)
		for _, p := range row.Panels {
			require.Greater(t, p.GridPos.Y, row.GridPos.Y, p.Title)
		}
	}
}

// An operator looks from the top.
func TestTheDashboardBeginsWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, p := range dashboard(t).Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	require.Equal(t, []string{
		"Is anything wrong?", "Who leads", "Registry", "Sweeps", "Holds", "Redis' share", "Telemetry",
		"Commands",
		"Clean-up", "Availability", "Processes",
	}, rows)
}

func TestTheDashboardAsksNoDataSourceAndNoVariableThatIsNotThere(t *testing.T) {
	t.Parallel()
	d := dashboard(t)
	sources := map[string]grafana.Datasource{"Terms": d.Annotations.List[0].Datasource}
	var names []string
	for _, v := range d.Templating.List {
		require.NotContains(t, names, v.Name)
		names = append(names, v.Name)
		if v.Datasource != nil {
			sources["variable "+v.Name] = *v.Datasource
		}
	}
	require.Equal(t, []string{"datasource", "job", "instance"}, names)
	variable := regexp.MustCompile(`\$\{?([a-z_]+)`)
	for _, p := range d.All() {
		for _, q := range p.Targets {
			sources[p.Title+" "+q.RefID] = q.Datasource
			for _, used := range variable.FindAllStringSubmatch(q.Expr, -1) {
				require.Contains(t, append([]string{"__rate_interval"}, names...), used[1], "%s: %s", p.Title,
					q.Expr)
			}
			require.Contains(t, q.Expr, "$job", "%s: another fleet is shown as well", p.Title)
		}
		if p.Datasource != nil {
			sources[p.Title] = *p.Datasource
		}
	}
	for where, source := range sources {
		require.Equal(t, grafana.Datasource{Type: "prometheus", UID: "${datasource}"}, source, where)
	}
}

var linked = regexp.MustCompile(`\]\(https://github\.com/rollcall-redis/rollcall/blob/main/([^)#]+)(?:#([^)]+))?\)`)

func TestEachPanelOfTheDashboardLeadsToAPageAndAHeadingThatExist(t *testing.T) {
	t.Parallel()
	for _, p := range dashboard(t).All() {
		if p.Type == "row" {
			continue
		}
		links := linked.FindAllStringSubmatch(p.Description, -1)
		require.NotEmpty(t, links, p.Title)
		require.Equal(t, strings.Count(p.Description, "]("), len(links), p.Title)
		for _, link := range links {
			text, err := os.ReadFile("../" + link[1])
			require.NoError(t, err, p.Title)
			if link[2] != "" {
				require.Contains(t, anchors(string(text)), link[2], "%s: %s", p.Title, link[1])
			}
		}
	}
}

// anchors are those that GitHub makes of headings.
func anchors(page string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

func TestTheDashboardShowsEachMetric(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	require.NoError(t, err)
	var shown []string
	for _, p := range dashboard(t).All() {
		for _, q := range p.Targets {
			for _, name := range regexp.MustCompile(`[a-z_]+_[a-z_]+`).FindAllString(q.Expr, -1) {
				shown = append(shown, name, strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"))
			}
		}
	}
	metrics := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(metrics), 50)
	for _, m := range metrics {
		require.True(t, slices.Contains(shown, m[1]), "no panel shows %s", m[1])
	}
}
