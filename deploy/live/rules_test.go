package live

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// ratio is how much shorter all times of the alerts are here, and the settings that go with them.
const ratio = 20

type rules struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alerts reads alerts.yml.
func alerts(t testing.TB) (all rules) {
	t.Helper()
	text, err := os.ReadFile("../prometheus/alerts.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &all))
	return all
}

var window = regexp.MustCompile(`\[[0-9a-z]+\]`)

// shortened is a file with the alerts of some programs, and of the engine: a ratio quicker.
func shortened(t testing.TB, programs ...string) string {
	t.Helper()
	wanted := []string{"rollcall"}
	for _, program := range programs {
		wanted = append(wanted, "rollcall-"+program)
	}
	all := alerts(t)
	all.Groups = slices.DeleteFunc(all.Groups, func(g group) bool { return !slices.Contains(wanted, g.Name) })
	require.Len(t, all.Groups, len(wanted))
	for _, g := range all.Groups {
		for i := range g.Rules {
			r := &g.Rules[i]
			if r.For != "" {
				r.For = shorter(t, r.For)
			}
			r.Expr = window.ReplaceAllStringFunc(r.Expr, func(w string) string {
				return "[" + shorter(t, w[1:len(w)-1]) + "]"
			})
		}
	}
	text, err := json.Marshal(all) // JSON is YAML
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "alerts.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

func shorter(t testing.TB, d string) string {
	t.Helper()
	long, err := model.ParseDuration(d)
	require.NoError(t, err)
	return model.Duration(time.Duration(long) / ratio).String()
}

func TestAShorterTimeIsExact(t *testing.T) {
	t.Parallel()
	require.Equal(t, "6s", shorter(t, "2m"))
	require.Equal(t, "1h12m", shorter(t, "1d"))
}
