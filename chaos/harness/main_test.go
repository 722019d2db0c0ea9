package harness

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestSumAddsUpTheSeriesOfOneName(t *testing.T) {
	t.Parallel()
	total, err := Sum([]byte("# HELP a b\na{x=\"1\"} 2\na{x=\"2 {\"} 3.5\nab 7\na 1\n"), "a")
	require.NoError(t, err)
	require.InDelta(t, 6.5, total, 0)
	_, err = Sum([]byte("a x\n"), "a")
	require.Error(t, err)
}
