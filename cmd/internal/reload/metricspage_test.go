package reload

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
)

var update = flag.Bool("update", false, "write the section of docs/reference/metrics.md")

func TestTheMetricsPageShowsTheMetricsOfFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("geheim"), 0o600))
	f, err := Open("REDIS_PASSWORD_FILE", Line, path)
	require.NoError(t, err)
	r := metricspage.NewRecorder()
	New(slog.Default(), r, f)
	metricspage.Check(t, "../../../", "Settings in files", r, *update)
}
