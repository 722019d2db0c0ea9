// Package metricspage compares docs/reference/metrics.md with the metrics that the code registers.
// Each program calls [Check] in a test of its own, since no other package may import its parts.
package metricspage

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// page is relative to the root.
const page = "docs/reference/metrics.md"

// metric is as the program registers it.
type metric struct {
	name, kind, help string
	labels           []string
	values           map[string][]string // by label, if they exist from the start
}

// Recorder keeps every collector for [Check].
type Recorder struct {
	*prometheus.Registry
	all []prometheus.Collector
}

// Register implements [prometheus.Registerer].
func (r *Recorder) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	r.all = append(r.all, c)
	return nil
}

// MustRegister implements [prometheus.Registerer].
func (r *Recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{Registry: prometheus.NewRegistry()} }

// Check compares the page's section of that title with the recorder's metrics, or writes it. root
// is the way to the repository's root.
func Check(t *testing.T, root, title string, r *Recorder, update bool) {
	t.Helper()
	var b strings.Builder
	b.WriteString("| metric | labels, what | normal; otherwise |\n|---|---|---|\n")
	for _, m := range r.metrics(t) {
		text, ok := meanings[m.name]
		require.True(t, ok, "internal/docs/metricspage/meanings.go has no entry for the metric %s", m.name)
		normal := text.normal
		if text.otherwise != "" {
			normal += "; " + text.otherwise
		}
		fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", m.name, m.kindAndLabels(), m.help, normal)
	}
	have, err := os.ReadFile(root + page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(have), "\n## "+title+"\n\n")
	require.True(t, found, "%s has no section %q", page, title)
	section, after, more := strings.Cut(rest, "\n## ")
	if !update {
		require.Equal(t, b.String(), section, "%s is out of date; renew it by: "+
			"go test -p 1 ./internal/docs/ ./availability/ ./cmd/... -run MetricsPage -update", page)
		return
	}
	whole := before + "\n## " + title + "\n\n" + b.String()
	if more {
		whole += "\n## " + after
	}
	require.NoError(t, os.WriteFile(root+page, []byte(whole), 0o644))
}

// Values returns a label's values that exist from the start.
func (r *Recorder) Values(t *testing.T, metric, label string) []string {
	t.Helper()
	_, values := r.gathered(t)
	return values[metric][label]
}

// Names returns all metrics that the page must show, sorted.
func Names() []string {
	return slices.Sorted(maps.Keys(meanings))
}

var described = regexp.MustCompile(`fqName: "([^"]*)", help: "(.*)", unit: .*, constLabels: {(.*)}, variableLabels: {(.*)}}`)

func (r *Recorder) metrics(t *testing.T) []metric {
	t.Helper()
	kinds, values := r.gathered(t)
	var all []metric
	for _, c := range r.all {
		descs := make(chan *prometheus.Desc, 1)
		c.Describe(descs)
		desc := (<-descs).String()
		found := described.FindStringSubmatch(desc)
		require.NotNil(t, found, desc)
		m := metric{name: found[1], help: strings.ReplaceAll(found[2], `\"`, `"`)}
		if slices.ContainsFunc(all, func(other metric) bool { return other.name == m.name }) {
			continue // there is one gauge for each sweep
		}
		switch c.(type) {
		case *prometheus.CounterVec:
			m.kind = "counter"
		case *prometheus.GaugeVec:
			m.kind = "gauge"
		case *prometheus.HistogramVec:
			m.kind = "histogram"
		default:
			m.kind = kinds[m.name]
		}
		require.NotEmpty(t, m.kind, "a collector of an unknown kind: %T", c)
		for _, label := range strings.Split(found[3]+","+found[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				m.labels = append(m.labels, name)
			}
		}
		m.values = values[m.name]
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all
}

// gathered metrics have a series already.
func (r *Recorder) gathered(t *testing.T) (kinds map[string]string, values map[string]map[string][]string) {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	kinds, values = make(map[string]string), make(map[string]map[string][]string)
	for _, family := range families {
		kinds[family.GetName()] = strings.ToLower(family.GetType().String())
		labels := make(map[string][]string)
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if !slices.Contains(labels[label.GetName()], label.GetValue()) {
					labels[label.GetName()] = append(labels[label.GetName()], label.GetValue())
				}
			}
		}
		values[family.GetName()] = labels
	}
	return kinds, values
}

// ownNames are labels whose values are the names of rules, sweeps, keys or settings.
var ownNames = []string{"rule", "category", "key", "setting", "sweep"}

// kindAndLabels omits the kinds that names show: a counter's ends with _total.
func (m metric) kindAndLabels() string {
	text := ""
	if m.kind == "histogram" {
		text = "Histogram. "
	}
	for i, label := range m.labels {
		if i > 0 {
			text += "; "
		}
		text += "`" + label + "`"
		if known := m.values[label]; len(known) > 0 && !slices.Contains(ownNames, label) {
			text += ": " + strings.Join(known, ", ")
		}
	}
	if len(m.labels) > 0 {
		text += ". "
	}
	return text
}
