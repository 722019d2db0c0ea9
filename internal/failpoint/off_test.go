//go:build !failpoints || !unix

package failpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutTheTagNoOrderIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, string(BeforeScript)), []byte("kill"), 0o600))
	c := start(t, dir)
	c.hit(string(BeforeScript))
	c.back()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, string(BeforeScript), entries[0].Name())
}

func TestWithoutTheTagAContextStaysTheSame(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, ctx, HitPast(ctx, BeforeScript))
}
