package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAFleetIsNamedByTheFileOfFleets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.World{
		Client: redistest.Shared(t).Client(), Options: redistest.Shared(t).Options(), Prefix: redistest.Prefix(t),
	})
	w.writes("one", 0, imei)
	file := filepath.Join(t.TempDir(), "fleets")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("# ours\n[here]\nREDIS_URL = redis://" + w.options.Addr + "\nprefix=" + w.keys.Prefix +
		"\nhttp=http://127.0.0.1:1\n\n[away]\nREDIS_URL=redis://:guessed@127.0.0.1:2\n")
	w.environ = []string{"ROLLCALL_FLEETS=" + file, "REDIS_URL=redis://127.0.0.1:3", "REDIS_PASSWORD_FILE=/no/file"}

	code, stdout, stderr := w.runPlainly("find", imei, "--fleet", "here")
	require.Equal(t, cli.ExitOK, code, stderr)
	require.Contains(t, stdout, "names one", "nothing of the environment is mixed in, nor a flag that find has not")
	_, stdout, _ = w.runPlainly("status", "--fleet=here")
	require.Contains(t, stdout, "no answer: ", "the replica of the file is asked")
	code, stdout, _ = w.runPlainly("find", imei, "--fleet=here", "--prefix", w.keys.Prefix+"x")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, stdout, "nobody holds", "a flag wins")
	_, _, stderr = w.runPlainly("status", "--fleet=away")
	require.Contains(t, stderr, "127.0.0.1:2")
	require.NotContains(t, stderr, "guessed")
	code, _, stderr = w.runPlainly("status", "--fleet=there")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, stderr, `has no fleet "there"; it has: away, here`)
	w.environ = append(w.environ, "ROLLCALL_FLEET=here")
	code, _, _ = w.runPlainly("find", imei)
	require.Equal(t, cli.ExitOK, code)
	write("[here]\nREDIS_URI=redis://:guessed@127.0.0.1:2\n")
	code, _, stderr = w.runPlainly("status")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, stderr, "line 2: expected [name of a fleet], or after it one of REDIS_URL, ")
	require.NotContains(t, stderr, "guessed")
}

func TestAnAnswerIsWaitedForAsLongAsAsked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	defer server.Cont()
	w := &world{t: t, environ: []string{"REDIS_URL=redis://" + server.Addr()}}
	code, _, stderr := w.runPlainly("status", "--timeout", "200ms")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, stderr, "no answer of Redis at ")
}
