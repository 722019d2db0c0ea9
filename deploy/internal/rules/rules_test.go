package rules

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFasterFileIsTheSameButForItsTimes(t *testing.T) {
	t.Parallel()
	all, err := Read("../../prometheus/alerts.yml")
	require.NoError(t, err)
	faster, err := all.Faster(20)
	require.NoError(t, err)
	require.Len(t, faster.Groups, len(all.Groups))
	alert := func(f File, group int, name string) Alert {
		rules := f.Groups[group].Rules
		return rules[slices.IndexFunc(rules, func(a Alert) bool { return a.Alert == name })]
	}
	held := func(f File) Alert { return alert(f, 0, "RollcallHeld") }
	require.Contains(t, alert(faster, 0, "RollcallShrank").Expr, "[3m:3s]", "a subquery's step, too")
	require.Equal(t, "sum by (job, partition, reason) (increase(janitor_held_total[10m])) > 0", held(all).Expr)
	require.Equal(t, "15m", held(all).For)
	require.Equal(t, "sum by (job, partition, reason) (increase(janitor_held_total[30s])) > 0", held(faster).Expr)
	require.Equal(t, "45s", held(faster).For)
	require.Equal(t, held(all).Labels, held(faster).Labels)

	file := filepath.Join(t.TempDir(), "faster.yml")
	require.NoError(t, faster.Write(file))
	again, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, faster, again)
}

func TestATimeThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	_, err := File{[]Group{{Rules: []Alert{{Alert: "A", For: "soon"}}}}}.Faster(20)
	require.ErrorContains(t, err, "rules: A: ")
}

func TestAFileOfAProgramHasWhatAllProgramsHave(t *testing.T) {
	t.Parallel()
	all, err := Read("../../prometheus/alerts.yml")
	require.NoError(t, err)
	var names []string
	for _, g := range all.Of("ingest").Groups {
		names = append(names, g.Name)
	}
	require.Equal(t, []string{"rollcall", "rollcall-ingest"}, names)
}
