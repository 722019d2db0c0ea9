package live

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/deploy/internal/rules"
)

// ratio is how much shorter all times of the alerts are here, and the settings that go with them.
const ratio = 20

// alerts reads alerts.yml.
func alerts(t testing.TB) rules.File {
	t.Helper()
	all, err := rules.Read("../prometheus/alerts.yml")
	require.NoError(t, err)
	return all
}

// faster is a file with the alerts of a program, and of what all programs have, with shorter times.
func faster(t testing.TB, program string) string {
	t.Helper()
	f, err := alerts(t).Of(program).Faster(ratio)
	require.NoError(t, err)
	require.Len(t, f.Groups, 2)
	file := filepath.Join(t.TempDir(), "alerts.yml")
	require.NoError(t, f.Write(file))
	return file
}
