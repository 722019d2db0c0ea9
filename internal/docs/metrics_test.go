// Package docs holds the tests of this project's pages, and writes the pages that are made from
// code.
package docs

import (
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/registry"
)

// update writes the pages instead of comparing them.
var update = flag.Bool("update", false, "write the pages that are made from code and reports")

// renew is what a failing test tells the reader to run.
const renew = "renew it by: go test ./internal/docs/ -update"

// A metric is one family as the program registers it.
type metric struct {
	name, kind, help string
	labels           []string
	values           map[string][]string // of each label, as far as they exist before anything happens
}

// A recorder keeps what is registered with it.
type recorder struct {
	*prometheus.Registry
	all []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	r.all = append(r.all, c)
	return nil
}

func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// A part is a package that registers metrics.
type part struct{ folder, title string }

var parts = []part{
	{"janitor", "The leader's side"},
	{"registry", "The owner's side"},
	{"cmd/ingest/internal/gateway", "Device sockets"},
	{"cmd/ingest/internal/commands", "Commands to devices"},
	{"orphan", "Rules about orphans"},
	{"cmd/cleanup/internal/cycles", "The clean-up worker"},
	{"availability", "Availability"},
	{"cmd/availability/internal/api", "Availability: requests"},
	{"cmd/availability/internal/database", "Availability: PostgreSQL"},
	{"cmd/internal/reload", "Settings that stand in files"},
}

// register makes the parts as the program does, on a Redis that is never asked. The recorders are
// in the order of parts.
func register(t *testing.T) []*recorder {
	t.Helper()
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	t.Cleanup(func() { require.NoError(t, rdb.Close()); require.NoError(t, ctl.Close()) })
	all := make([]*recorder, len(parts))
	for i := range all {
		all[i] = &recorder{Registry: prometheus.NewRegistry()}
	}
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Registerer: all[1], Namespace: "teltonika",
	})
	require.NoError(t, err)
	_, err = janitor.New(janitor.Config{
		Client: rdb, Control: ctl, Registry: reg, Registerer: all[0],
		Sweeps: []janitor.Sweeper{commands.NewSweep(reg.Layout())},
	})
	require.NoError(t, err)
	sockets, err := gateway.New(gateway.Config{
		Register:   func(imei string) gateway.Claim { return reg.Register(imei) },
		Client:     rdb,
		Registerer: all[2],
	})
	require.NoError(t, err)
	_, err = commands.New(commands.Config{
		Instance: reg.Instance(), Layout: reg.Layout(), Devices: sockets, Client: rdb, Blocking: rdb, Registerer: all[3],
	})
	require.NoError(t, err)
	set, err := orphan.New(orphan.Config{
		Rules: orphan.Colyseus(), Client: rdb, Source: noSource{}, Layout: guard.Layout{Prefix: "cleanup:"}, Registerer: all[4],
	})
	require.NoError(t, err)
	_, err = cleanup.New(cleanup.Config{Rules: orphan.Colyseus(), Removed: set.Stats, Registerer: all[5]})
	require.NoError(t, err)
	_, err = availability.New(availability.Config{
		Source: nobody{}, Client: rdb, Control: ctl, Layout: guard.Layout{Prefix: "availability:"}, Registerer: all[6],
	})
	require.NoError(t, err)
	_, err = api.New(api.Config{Registerer: all[7]})
	require.NoError(t, err)
	db, err := database.Open(t.Context(), database.Config{URL: "postgres:///", Logger: slog.Default(), Registerer: all[8]})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = reload.New(reload.Config{Files: []reload.Watched{inAFile(t)}, Logger: slog.Default(),
		Registerer: all[9]})
	require.NoError(t, err)
	return all
}

func inAFile(t *testing.T) reload.Watched {
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("geheim"), 0o600))
	f, err := reload.Open("REDIS_PASSWORD_FILE", reload.Line, path)
	require.NoError(t, err)
	return f
}

// nobody is never asked.
type nobody struct{ availability.Source }

// noSource is never asked.
type noSource struct{ orphan.Source }

var described = regexp.MustCompile(`fqName: "([^"]*)", help: "(.*)", unit: .*, constLabels: {(.*)}, variableLabels: {(.*)}}`)

// metrics lists what a recorder was given, by name.
func (r *recorder) metrics(t *testing.T) []metric {
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

// gathered says, of each metric that has a series already, its kind and the values of its labels.
func (r *recorder) gathered(t *testing.T) (kinds map[string]string, values map[string]map[string][]string) {
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

func TestTheMetricsPageShowsEveryMetricOfTheProgram(t *testing.T) {
	t.Parallel()
	const page = "../../docs/metrics.md"
	left := maps.Clone(meanings)
	var b strings.Builder
	b.WriteString(metricsIntro)
	for i, r := range register(t) {
		fmt.Fprintf(&b, "\n## %s\n\n", parts[i].title)
		b.WriteString("| metric | type, labels | what | normal | otherwise |\n|---|---|---|---|---|\n")
		for _, m := range r.metrics(t) {
			text, ok := left[m.name]
			require.True(t, ok, "internal/docs/meanings_test.go says nothing of the metric %s", m.name)
			delete(left, m.name)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kindAndLabels(), m.help, text.normal, text.otherwise)
		}
	}
	require.Empty(t, left, "internal/docs/meanings_test.go explains metrics that there are not")
	same(t, page, b.String())
}

func (m metric) kindAndLabels() string {
	text := m.kind
	for _, label := range m.labels {
		text += "; `" + label + "`"
		if known := m.values[label]; len(known) > 0 {
			text += ": " + strings.Join(known, ", ")
		}
	}
	return text
}

// same compares a page with what it should be, or writes it.
func same(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "%s is out of date; %s", page, renew)
}

func TestNoOtherPackageRegistersMetrics(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`prometheus\.(New\w*(Vec|Func|Counter|Gauge|Histogram|Summary|Desc)|\w+Opts)\b`)
	walk(t, ".go", func(name, text string) {
		folder := filepath.ToSlash(filepath.Dir(name))
		known := slices.ContainsFunc(parts, func(p part) bool { return p.folder == folder })
		if !known && !strings.HasSuffix(name, "_test.go") {
			found := made.FindString(text)
			require.Contains(t, []string{"", "prometheus.ProcessCollectorOpts"}, found, "docs/metrics.md does not know %s: add it to parts", name)
		}
	})
}

// walk reads every file of the repository whose name ends so. Names are relative to its root.
func walk(t *testing.T, suffix string, f func(name, text string)) {
	t.Helper()
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != ".":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err == nil {
			f(name, string(text))
		}
		return err
	}))
}
