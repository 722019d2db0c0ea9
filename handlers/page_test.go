package handlers_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func TestThePageShowsThisCode(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/embed.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?ms)^\t?// page: (\w+)\n(.*?)^\t?// page: end\n`).FindAllStringSubmatch(string(code), -1)
	require.Len(t, found, 2)
	for _, block := range found {
		shown := block[2]
		if strings.HasPrefix(shown, "\t") {
			shown = strings.TrimPrefix(strings.ReplaceAll("\n"+shown, "\n\t", "\n"), "\n")
		}
		require.Contains(t, string(page), "```go\n"+strings.TrimSpace(shown)+"\n```\n",
			"docs/embed.md has another text of %s", block[1])
	}
}

// It sets the environment and go-redis' logger, so it runs alone.
func TestTheReplicaOfThePageRunsAsPasted(t *testing.T) {
	srv := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+srv.Addr())
	t.Setenv("POD_NAME", "pod-1")
	err := serve(func(ctx context.Context, mux *http.ServeMux, replica *rollcall.Replica) error {
		require.Equal(t, "pod-1", replica.Instance())
		waittest.Until(t, time.Millisecond, func() bool {
			code, _ := get(at(mux, "/readyz")) // 503 until it has heard its own message
			return code == http.StatusOK
		})
		for _, path := range []string{"/readyz", "/rollcall", "/rollcall/status", "/metrics"} {
			code, body := get(at(mux, path))
			require.Equal(t, http.StatusOK, code, path)
			require.NotEmpty(t, body)
		}
		return io.EOF // ends them all
	})
	require.ErrorIs(t, err, io.EOF)
	require.NotEmpty(t, srv.Client().Exists(t.Context(), guard.Layout{}.Witness()).Val())
}

func at(mux *http.ServeMux, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = path
		mux.ServeHTTP(w, r)
	})
}
