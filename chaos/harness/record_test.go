package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARunIsAddedToTheRecordAndToTheSums(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, report := filepath.Join(dir, "record.csv"), filepath.Join(dir, "README.md")
	require.NoError(t, os.WriteFile(path, []byte("date,servers,make,evictions,wrong deletes,commit\n"), 0o600))
	require.NoError(t, os.WriteFile(report, []byte("# Report\n\n"+Sums(nil)+"\nthe rest\n"), 0o600))
	require.NoError(t, record(path, Run{"2026-11-20", "Cluster", "Redis 8.0.2", "abc", 5, 0}))
	require.NoError(t, record(path, Run{"2026-11-21", "Cluster", "Redis 8.0.2", "abd", 7, 1}))
	require.NoError(t, record(path, Run{"2026-11-22", "one server", "Redis 7.0.15", "abe", 1, 0}))
	runs, err := Runs(path)
	require.NoError(t, err)
	require.Equal(t, Run{"2026-11-21", "Cluster", "Redis 8.0.2", "abd", 7, 1}, runs[1])
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Equal(t, `# Report

<!-- sums -->
| servers | make | runs | evictions | wrong deletes |
|---|---|---|---|---|
| Cluster | Redis 8.0.2 | 2 | 12 | 1 |
| one server | Redis 7.0.15 | 1 | 1 | 0 |
| all | | 3 | 13 | 1 |
<!-- end of sums -->

the rest
`, string(text))
}

func TestTheReportShowsTheSumsOfTheRecord(t *testing.T) {
	t.Parallel()
	runs, err := Runs("../record.csv")
	require.NoError(t, err)
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(text), Sums(runs))
}
