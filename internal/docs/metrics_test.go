// Package docs holds the tests of this project's pages, and writes the pages that are made from
// code.
package docs

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// update writes the pages instead of comparing them.
var update = flag.Bool("update", false, "write the pages that are made from code and reports")

// clients returns clients of a Redis that is never asked.
func clients(t *testing.T) (rdb, ctl *redis.Client) {
	t.Helper()
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb, ctl = redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	t.Cleanup(func() { require.NoError(t, rdb.Close()); require.NoError(t, ctl.Close()) })
	return rdb, ctl
}

// noSource is never asked.
type noSource struct{ orphan.Source }

// The sections of other modules are checked in those.
func TestTheMetricsPageShowsTheMetricsOfTheLibraries(t *testing.T) {
	rdb, ctl := clients(t)
	r := metricspage.NewRecorder()
	_, err := registry.New(registry.Config{Client: rdb, Control: ctl, Registerer: r, Namespace: "teltonika"})
	require.NoError(t, err)
	metricspage.Check(t, "../../", "The owner's side", r, *update)

	r = metricspage.NewRecorder()
	_, err = orphan.New(orphan.Config{
		Rules: rules.Colyseus(), Client: rdb, Source: noSource{}, Layout: guard.Layout{Prefix: "cleanup:"}, Registerer: r,
	})
	require.NoError(t, err)
	metricspage.Check(t, "../../", "Rules about orphans", r, *update)
}

func TestTheMetricsPageLacksNoMetricThatHasAMeaning(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/reference/metrics.md")
	for _, name := range metricspage.Names() {
		require.Contains(t, page, "\n| `"+name+"` |", "internal/docs/metricspage/meanings.go explains a metric that does not exist")
	}
}

// holdReasons are those that the janitor counts.
func holdReasons(t *testing.T) []string {
	t.Helper()
	rdb, ctl := clients(t)
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
	require.NoError(t, err)
	r := metricspage.NewRecorder()
	_, err = janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Registerer: r})
	require.NoError(t, err)
	return r.Values(t, "janitor_held_total", "reason")
}

// registering are the packages whose metrics docs/reference/metrics.md lists. Each has a test that
// calls metricspage.Check.
var registering = []string{
	"janitor", "registry", "cmd/ingest/internal/gateway", "cmd/ingest/internal/commands", "orphan",
	"cmd/cleanup/internal/cycles", "availability", "cmd/availability/internal/api",
	"cmd/availability/internal/database", "cmd/internal/reload",
}

func TestNoOtherPackageRegistersMetrics(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`prometheus\.(New\w*(Vec|Func|Counter|Gauge|Histogram|Summary|Desc)|\w+Opts)\b`)
	walk(t, ".go", func(name, text string) {
		folder := filepath.ToSlash(filepath.Dir(name))
		known := slices.Contains(registering, folder)
		if !known && !strings.HasSuffix(name, "_test.go") {
			found := made.FindString(text)
			require.Contains(t, []string{"", "prometheus.ProcessCollectorOpts"}, found, "docs/reference/metrics.md does not know %s: add it to registering", name)
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
