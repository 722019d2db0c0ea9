package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
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
