package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// decode reads a YAML file into v.
func decode(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, v))
}

// promtool runs Prometheus' checker of rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	find := exec.Command("../scripts/prometheus")
	find.Stderr = os.Stderr
	folder, err := find.Output()
	require.NoError(t, err)
	out, err := exec.Command(filepath.Join(strings.TrimSpace(string(folder)), "promtool"),
		args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestPrometheusLoadsTheAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "prometheus/alerts.yml")
}

func TestEachAlertFiresInItsCaseAndIsSilentInItsNeighbour(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", "prometheus/alerts_test.yml")
}

func TestEachAlertHasATestWithANeighbour(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	decode(t, "prometheus/alerts.yml", &rules)
	var cases struct {
		Tests []struct {
			Name  string
			Times []struct {
				Fires []struct{ Labels string } `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	decode(t, "prometheus/alerts_test.yml", &cases)
	alerts := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts++
			found := 0
			for _, c := range cases.Tests {
				if !strings.HasPrefix(c.Name, rule.Alert+"; ") {
					continue
				}
				found++
				require.Len(t, c.Times, 2, c.Name)
				require.Empty(t, c.Times[0].Fires, c.Name)
				require.Len(t, c.Times[1].Fires, 1, c.Name)
				require.Contains(t, c.Times[1].Fires[0].Labels, `alertname="`+rule.Alert+`"`)
			}
			require.Equal(t, 1, found, "alerts_test.yml has no test of the name %s", rule.Alert)
		}
	}
	require.Greater(t, alerts, 30)
}

func TestInhibitionNamesAlertsThatExistAndMutesNoCause(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	decode(t, "prometheus/alerts.yml", &rules)
	var names []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	var inhibit struct {
		Rules []struct {
			Source []string `json:"source_matchers"`
			Target []string `json:"target_matchers"`
			Equal  []string
		} `json:"inhibit_rules"`
	}
	decode(t, "prometheus/alertmanager.yml", &inhibit)
	require.NotEmpty(t, inhibit.Rules)
	matched := func(matchers []string) (found []string) {
		for _, name := range names {
			all := true
			for _, m := range matchers {
				parts := matcher.FindStringSubmatch(m)
				require.NotNil(t, parts, m)
				is := regexp.MustCompile("^(?:" + parts[2] + ")$").MatchString(name)
				all = all && is == (parts[1] != "!=")
			}
			if all {
				found = append(found, name)
			}
		}
		return found
	}
	for _, rule := range inhibit.Rules {
		for _, m := range slices.Concat(rule.Source, rule.Target) {
			for name := range strings.SplitSeq(matcher.FindStringSubmatch(m)[2], "|") {
				require.True(t, strings.HasSuffix(name, ".+") || slices.Contains(names, name), name)
			}
		}
		require.Equal(t, []string{"job"}, rule.Equal)
		causes, follow := matched(rule.Source), matched(rule.Target)
		require.NotEmpty(t, causes)
		require.NotEmpty(t, follow)
		for _, cause := range causes {
			require.NotContains(t, follow, cause, "it mutes itself")
			require.NotContains(t, follow, "RollcallGone")
		}
	}
}

// matcher is a matcher of an alert's name, as Alertmanager reads it.
var matcher = regexp.MustCompile(`^alertname (=|=~|!=) "?([^"]+)"?$`)
