package cycles

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the files of testdata")

// bench is Cycles whose rules remove what the test requests.
type bench struct {
	*Cycles
	removed orphan.Stats
	log     bytes.Buffer
	metrics *prometheus.Registry
}

var some = []rules.Rule{
	{Name: "reservations", Category: "expiredReservations", Delete: true},
	{Name: "queue", Category: "staleQueueEntries", Delete: true},
	{Name: "tickets", Category: "staleQueueEntries", Delete: true},
	{Name: "carts"},
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{metrics: prometheus.NewRegistry()}
	b.removed = orphan.Stats{Categories: map[string]uint64{}, Rules: map[string]uint64{}, CategoryKeys: map[string]uint64{}}
	var err error
	b.Cycles, err = New(Config{
		Rules: some, Registerer: b.metrics,
		Removed: func() orphan.Stats {
			return orphan.Stats{
				Categories: maps.Clone(b.removed.Categories), Rules: maps.Clone(b.removed.Rules), Keys: b.removed.Keys,
				CategoryKeys: maps.Clone(b.removed.CategoryKeys),
			}
		},
		Logger: slog.New(slog.NewJSONHandler(&b.log, nil)),
	})
	require.NoError(t, err)
	return b
}

// goes simulates a removal by some pass.
func (b *bench) goes(rule, category string, orphans, keys uint64) {
	b.removed.Rules[rule] += orphans
	b.removed.Categories[category] += orphans
	b.removed.Keys += keys
	b.removed.CategoryKeys[category] += keys
}

// passes is a pass that takes a second.
func (b *bench) passes(rule string, outcome janitor.Outcome, reason string) {
	began := time.Now()
	time.Sleep(time.Second)
	detail := ""
	if outcome != janitor.Done {
		detail = "it is gone"
	}
	b.Passed(orphan.Result{Rule: rule, Outcome: janitor.Done, Started: began}) // not full: of what is marked alone
	b.Passed(orphan.Result{Rule: rule, Outcome: outcome, Detail: detail, Reason: reason, Full: true, Started: began, Duration: time.Since(began)})
}

// lines are what was logged, by line.
func (b *bench) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.log.String()) {
		var one map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		delete(one, "time")
		all = append(all, one)
	}
	return all
}

func TestACycleEndsWhenEachRuleHasHadItsPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		require.False(t, b.Stats(false).IsRunning)
		require.Nil(t, b.Stats(true).LastCleanup, "there was no cycle")
		b.passes("reservations", janitor.Done, "")
		b.passes("reservations", janitor.Done, "")
		b.goes("reservations", "expiredReservations", 3, 3)
		b.passes("tickets", janitor.Held, "reference_lost")
		b.passes("carts", janitor.Lost, "")
		b.passes("queue", janitor.Failed, "")
		require.Empty(t, b.lines(t))
		require.Zero(t, b.Stats(true).TotalCleanupsRun, "a pass that is lost is none")
		b.goes("queue", "staleQueueEntries", 1, 2)
		b.passes("carts", janitor.Done, "")

		require.Equal(t, []map[string]any{{
			"level": "INFO", "msg": "cleanup cycle over", "seconds": 4.0, "keys": 5.0,
			"removed": map[string]any{"expiredReservations": 3.0, "staleQueueEntries": 1.0, "carts": 0.0},
			"held":    map[string]any{"tickets": "reference_lost: it is gone"}, "failed": map[string]any{"queue": "it is gone"},
		}}, b.lines(t), "the time of the last pass of each rule")
		s := b.Stats(true)
		require.True(t, s.IsRunning)
		require.EqualValues(t, 1, s.TotalCleanupsRun)
		require.Equal(t, time.Now().UTC(), *s.LastCleanup)
		require.NoError(t, testutil.GatherAndCompare(b.metrics, strings.NewReader(`
# HELP cleanup_cycles_total Cycles: each rule has had one full pass, and at least one of them was not held.
# TYPE cleanup_cycles_total counter
cleanup_cycles_total 1
# HELP cleanup_keys_removed_total Keys and members removed, with related ones, by category.
# TYPE cleanup_keys_removed_total counter
cleanup_keys_removed_total{category="carts"} 0
cleanup_keys_removed_total{category="expiredReservations"} 3
cleanup_keys_removed_total{category="staleQueueEntries"} 2
# HELP cleanup_last_cycle_timestamp_seconds When this process last finished a cycle.
# TYPE cleanup_last_cycle_timestamp_seconds gauge
cleanup_last_cycle_timestamp_seconds 9.46684806e+08
# HELP cleanup_orphans_removed_total Orphans removed, by category: each once, however many keys went with it.
# TYPE cleanup_orphans_removed_total counter
cleanup_orphans_removed_total{category="carts"} 0
cleanup_orphans_removed_total{category="expiredReservations"} 3
cleanup_orphans_removed_total{category="staleQueueEntries"} 1
`), "cleanup_orphans_removed_total", "cleanup_cycles_total", "cleanup_keys_removed_total", "cleanup_last_cycle_timestamp_seconds"))
	})
}

func TestACycleHasWhatWentSinceTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for range 2 {
			for _, rule := range some {
				b.passes(rule.Name, janitor.Done, "")
			}
			// Between two full passes a rule looks at what is marked: that is part of the next cycle.
			b.goes("queue", "staleQueueEntries", 1, 2)
		}
		lines := b.lines(t)
		require.Len(t, lines, 2)
		require.Zero(t, lines[0]["keys"])
		require.EqualValues(t, 2, lines[1]["keys"])
		require.NotContains(t, lines[1], "held")
		require.NotContains(t, lines[1], "failed")

		removed, keys := b.Since(b.removed)
		require.Equal(t, map[string]uint64{"expiredReservations": 0, "staleQueueEntries": 0, "carts": 0}, removed)
		require.Zero(t, keys)
	})
}

func TestACycleInWhichEachRuleIsHeldOrFailsIsLoggedAndNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i, rule := range some {
			b.passes(rule.Name, []janitor.Outcome{janitor.Held, janitor.Failed}[i%2], "gap")
		}
		require.Len(t, b.lines(t), 1)
		require.Zero(t, b.Stats(true).TotalCleanupsRun)
		require.Nil(t, b.Stats(true).LastCleanup)
		b.passes(some[0].Name, janitor.Done, "")
		require.Len(t, b.lines(t), 1, "the next cycle begins anew")
	})
}

func TestWhatIsBesideEachOtherIsNotAddedUp(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	pass := func(begin, took time.Duration) orphan.Result {
		return orphan.Result{Started: at.Add(begin), Duration: took}
	}
	const s = time.Second
	for name, c := range map[string]struct {
		passes []orphan.Result
		want   time.Duration
	}{
		"one":                          {[]orphan.Result{pass(0, 3*s)}, 3 * s},
		"one in the other":             {[]orphan.Result{pass(0, 9*s), pass(2*s, 3*s)}, 9 * s},
		"one after the other":          {[]orphan.Result{pass(0, s), pass(s, s)}, 2 * s},
		"one over the other's end":     {[]orphan.Result{pass(2*s, 3*s), pass(0, 3*s)}, 5 * s},
		"one asked for long before":    {[]orphan.Result{pass(0, s), pass(200*s, 2*s)}, 3 * s},
		"the longest of three at once": {[]orphan.Result{pass(0, s), pass(0, 4*s), pass(0, 2*s)}, 4 * s},
	} {
		require.Equal(t, c.want, busy(c.passes), name)
	}
}

func TestTheStatsAreTheJSONThatIsPromised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		const page = "testdata/stats.json"
		first, err := json.MarshalIndent(b.Stats(false), "", "  ")
		require.NoError(t, err)
		b.goes("queue", "staleQueueEntries", 2, 5)
		b.goes("carts", "carts", 1, 1)
		for _, rule := range some {
			b.passes(rule.Name, janitor.Done, "")
		}
		later, err := json.MarshalIndent(b.Stats(true), "", "  ")
		require.NoError(t, err)
		have := string(first) + "\n" + string(later) + "\n"
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(have), 0o644))
		}
		want, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, string(want), have)
	})
}

func TestTheStatusHasTheLastPassOfEachRule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := time.Now()
	b.Passed(orphan.Result{
		Rule: "queue", Outcome: janitor.Held, Reason: "source", Detail: "away", Full: true, Started: at, Duration: 2 * time.Second,
		Scanned: 7, Condemned: 2, Removed: 1, Kept: map[string]int{"alive": 5}, Coverage: orphan.Coverage{Masters: 1, Of: 1, Complete: true},
	})
	b.goes("queue", "staleQueueEntries", 4, 8)
	all := b.Rules()
	require.Len(t, all, 4)
	require.Equal(t, RuleStatus{Rule: "reservations", Category: "expiredReservations", Delete: true}, all[0])
	require.Equal(t, RuleStatus{
		Rule: "queue", Category: "staleQueueEntries", Delete: true, Started: at, Outcome: janitor.Held, Reason: "source", Detail: "away", Seconds: 2,
		Scanned: 7, Condemned: 2, Removed: 1, Kept: map[string]int{"alive": 5}, Coverage: orphan.Coverage{Masters: 1, Of: 1, Complete: true}, Total: 4,
	}, all[1])
	require.Equal(t, "carts", all[3].Category, "without a category it is the rule's name")
}
