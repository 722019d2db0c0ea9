package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAVerbThatGoesOnTakesANewPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "password")
	admin := server.Client()
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "tool", "on", ">old", "~*", "&*", "+@all").Err())
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	var f fleet
	c := &cli.Command{Name: "rollcall test", Settings: f.table(), Check: f.check,
		Run: f.ask(func(ctx context.Context, r *inspect.Reader, _ io.Writer) error {
			_, _, err := r.Led(ctx)
			require.NoError(t, err)
			require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "tool", "resetpass", ">new").Err())
			require.NoError(t, admin.Do(ctx, "CLIENT", "KILL", "USER", "tool").Err())
			_, _, err = r.Led(ctx)
			require.Error(t, err)
			require.NoError(t, os.WriteFile(file, []byte("new\n"), 0o600))
			require.Eventually(t, func() bool {
				_, _, err := r.Led(ctx)
				return err == nil
			}, 15*time.Second, 10*time.Millisecond)
			return nil
		})}
	var out bytes.Buffer
	code := c.Execute(ctx,
		[]string{"--redis-url=redis://tool@" + server.Addr(), "--redis-password-file=" + file}, nil, &out,
		&out)
	require.Equal(t, cli.ExitOK, code, out.String())
}
