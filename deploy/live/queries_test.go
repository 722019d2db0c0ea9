package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/deploy/internal/grafana"
)

// empty are the queries of the dashboard that rightly have no data while all is well.
var empty = map[string]string{
	"Settings in files A":      "no setting is in a file here",
	"Settings in files B":      "no setting is in a file here",
	"Settings in files C":      "no device is shown a certificate here",
	"Waits for a connection B": "a wait has no length while nobody has waited",
}

// comparison is a query of an alert, without what makes it empty while all is well: what is left
// has data on each fleet, or the alert asks for a metric or label that is not there.
var comparison = regexp.MustCompile(` (?:==|<|>) [0-9.]+$`)

// unlike are alerts whose query has another shape; each side of it stands here.
var unlike = map[string][]string{
	"RollcallGone":     {"last_over_time(teltonika_registry_held[1d])"},
	"CleanupGone":      {"last_over_time(cleanup_cycles_total[1d])"},
	"AvailabilityGone": {"last_over_time(availability_mirror_whole[1d])"},
	"AvailabilityFallsBack": {
		// No read is answered by Postgres while all is well.
		`sum by (job) (rate(availability_reads_total{source="valkey"}[5m]))`,
		"sum by (job) (increase(availability_apply_failed_total[10m]))",
	},
	"AvailabilityReadsFail": {
		`sum by (job) (increase(availability_reads_total{source="valkey"}[5m]))`, // nor by nobody
	},
	"AvailabilityManyGoOffline": {
		"sum by (job) (increase(availability_auto_offline_total[10m]))",
		"max by (job) (availability_mitras_online)",
	},
	"AvailabilityHeartbeatsNotStored": {
		"sum by (job) (increase(availability_heartbeats_mirrored_total[10m]))",
		`sum by (job) (increase(availability_heartbeats_total{result="kept"}[10m]))`,
	},
	"RollcallTelemetryNotStored": {
		`sum by (job) (increase(ingest_frames_total{outcome="acknowledged"}[10m]))`, // none fails
	},
	"RollcallShrank": {
		"max_over_time(count by (job) (janitor_leader)[1h:1m])",
		"max_over_time(sum by (job) (teltonika_registry_held)[10m:30s])",
		"sum by (job) (increase(janitor_evicted_total[10m]))",
		`sum by (job) (increase(ingest_frames_total{outcome="acknowledged"}[10m]))`, // none fails
	},
	"RollcallFileFailing":     {}, // no replica here has its secrets in files
	"RollcallCertificateEnds": {}, // nor a certificate
	"RollcallFlooded": {
		`sum by (job) (increase(ingest_disconnects_total[10m]))`, // none for being one of a crowd
	},
}

// TestEachQueryOfDashboardAndAlertsHasData runs all three programs, with everything happening that
// leaves a trace in a metric, and asks a Prometheus that scrapes them.
func TestEachQueryOfDashboardAndAlertsHasData(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ingest()(r)
	cleanup(10)(r)
	available(&dispatch{}, 6, "AVAILABILITY_PREFIX={availability}:")(r) // else it is one fleet with ingest
	file, err := filepath.Abs("../prometheus/alerts.yml")
	require.NoError(t, err)
	r.watch(file)
	r.await("every replica is scraped, and each program has a leader", func() bool {
		return r.is(7, "sum(up)") && r.is(1, "sum by (job) (janitor_leader)")
	})
	r.devices(wanderers)
	r.users("gone", 2, false)
	// Replicas die, so that entries are evicted.
	r.await("nothing is held any more", func() bool {
		return r.is(1, `min(sum by (job) (janitor_witness_seconds)) > bool 10`)
	})
	for _, p := range r.jobs["ingest"][:2] {
		p.Kill()
		// Its devices may all have moved before its heartbeat ends. This one cannot.
		left := imei(49_015_420_323_751)
		require.NoError(t, r.rdb.SAdd(t.Context(), "instance:devices:"+p.id, left).Err())
		require.NoError(t, r.rdb.HSet(t.Context(), "connections:registry", left, p.id).Err())
		r.await("its entries are evicted", func() bool {
			return r.rdb.SIsMember(t.Context(), "instances:roster", p.id).Val() == false
		})
	}

	r.await("a device answers a command", func() bool { return r.command("getver") != "" })

	queries := make(map[string]string)
	dashboard, err := grafana.Read("../grafana/dashboard.json")
	require.NoError(t, err)
	for _, p := range dashboard.All() {
		for _, q := range p.Targets {
			name := p.Title + " " + q.RefID
			for queries[name] != "" { // two panels of one title
				name += "'"
			}
			queries[name] = q.Expr
		}
	}
	queries["annotation"] = dashboard.Annotations.List[0].Expr
	for _, g := range alerts(t).Groups {
		for _, rule := range g.Rules {
			exprs, found := unlike[rule.Alert]
			if !found {
				require.Regexp(t, comparison, rule.Expr, "%s: its query compares with no number", rule.Alert)
				exprs = []string{comparison.ReplaceAllString(rule.Expr, "")}
			}
			for i, expr := range exprs {
				queries[fmt.Sprint(rule.Alert, " ", i)] = expr
			}
			_, err := r.query(rule.Expr)
			require.NoError(t, err)
		}
	}
	require.Greater(t, len(queries), 100)
	r.allHaveData(queries)
}

// macros are what Grafana fills in.
var macros = strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m", "${datasource}",
	"")

func (r *rig) allHaveData(queries map[string]string) {
	r.Helper()
	var without []string
	for until := time.Now().Add(patience); ; {
		without = nil
		for name, expr := range queries {
			vector, err := r.query(macros.Replace(expr))
			require.NoError(r, err)
			odd := oddity(name, vector)
			if without = append(without, odd...); odd == nil && len(vector) > 0 {
				delete(queries, name) // once is enough
			}
		}
		if len(without) == 0 || time.Now().After(until) {
			break
		}
	}
	slices.Sort(without)
	require.Empty(r, without)
}

// oddity is a query's name, if it has no data and should, or has and should not.
func oddity(name string, vector model.Vector) []string {
	if reason, rightly := empty[name]; rightly != (len(vector) == 0) {
		return []string{name + ": " + reason}
	}
	return nil
}

// command sends a command to a device, by "ingest command", and returns what that says.
func (r *rig) command(text string) string {
	r.Helper()
	dir, err := programs()
	require.NoError(r, err)
	cmd := exec.CommandContext(r.Context(), filepath.Join(dir, "ingest"), "command",
		imei(35_630_704_000_000), text)
	cmd.Env = append(os.Environ(), "REDIS_URL="+r.redisURL())
	out, err := cmd.Output()
	if err != nil {
		return "" // its device is on the way to another replica
	}
	return string(out)
}
