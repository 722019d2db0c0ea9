package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// around is what a reader of docs/embed.md adds to its replica. listen asks for each page that
// is mounted, and then ends the process as Kubernetes does.
const around = `package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/handlers"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func listen(ctx context.Context, mux http.Handler, replica *rollcall.Replica) error {
	claim := replica.Register("alice", rollcall.Socket{Close: http.NoBody.Close})
	if err := claim.Wait(ctx); err != nil {
		return err
	}
	for _, path := range []string{"/readyz", "/rollcall", "/rollcall/status", "/metrics"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, answer.Code)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	<-ctx.Done()
	claim.Release()
	return nil
}
`

func TestTheReplicaOfThePageAboutEmbeddingRunsAsPasted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/embed.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 2)
	dir := t.TempDir()
	program, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay"), filepath.Join(dir, "replica")
	text := around + "\nfunc run() error {\n" + blocks[0][1] + "}\n\n" + blocks[1][1]
	require.NoError(t, os.WriteFile(program, []byte(text), 0o600))
	here, err := filepath.Abs("main.go")
	require.NoError(t, err)
	instead, err := json.Marshal(map[string]any{"Replace": map[string]string{here: program}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, instead, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	server := redistest.Start(t)
	replica := exec.CommandContext(t.Context(), binary)
	replica.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr(), "POD_NAME=pod-1")
	replica.Stderr = os.Stderr
	said, err := replica.Output()
	require.NoError(t, err)
	require.Equal(t, "/readyz 200\n/rollcall 200\n/rollcall/status 200\n/metrics 200\n", string(said))
	require.Empty(t, server.Client().Keys(t.Context(), "instance*").Val(), "it said goodbye")
}
