package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
)

// script runs one of the project's scripts, and returns what it prints.
func script(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("../../scripts/" + name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("go", "build", "-C", dir, "-o", file, pkg).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// asker keeps no connection open.
var asker = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

func TestAFleetIsSeenSurvivesADeathAndEndsAtAnInterrupt(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := exec.Command(build(t, ".", "."), build(t, "../..", "./cmd/ingest"),
		script(t, "redis"), script(t, "prometheus"), "../prometheus/alerts.yml")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	cmd.Stderr = os.Stderr
	p, err := process.Start(cmd, process.Options{Talk: true, OwnGroup: true})
	require.NoError(t, err)
	t.Cleanup(p.Kill)

	var pages, prometheus, said string
	var pids []int
	for !strings.HasPrefix(said, "Ctrl-C") {
		require.True(t, p.Out.Scan(), "it has ended, and said last: %s", said)
		said = p.Out.Text()
		if page := regexp.MustCompile(`^page +(http://\S+) .*pid (\d+)$`).FindStringSubmatch(said); page != nil {
			pages = page[1]
			pid, err := strconv.Atoi(page[2])
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		if url, ok := strings.CutPrefix(said, "Prometheus  "); ok {
			prometheus = strings.TrimSuffix(url, "/alerts")
		}
	}
	require.Len(t, pids, replicas)
	answer, err := asker.Get(pages)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Contains(t, string(text), "<html")

	client, err := api.NewClient(api.Config{Address: prometheus, RoundTripper: asker.Transport})
	require.NoError(t, err)
	prom := v1.NewAPI(client)
	loaded, err := prom.Rules(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, loaded.Groups, 2)
	awaits(t, prom, `sum(teltonika_registry_held)`, devices)

	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	require.True(t, p.Out.Scan())
	require.Contains(t, p.Out.Text(), "ingest-1 has ended")
	awaits(t, prom, `sum(up)`, replicas-1)
	awaits(t, prom, `sum(teltonika_registry_held)`, devices) // they went elsewhere

	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Zero(t, p.ExitCode())
	for _, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

// awaits waits until Prometheus knows a value.
func awaits(t *testing.T, prom v1.API, expr string, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		value, _, _, err := prom.Query(t.Context(), expr, time.Now())
		vector, ok := value.(model.Vector)
		return err == nil && ok && len(vector) == 1 && int(vector[0].Value) == want
	}, 2*time.Minute, 100*time.Millisecond, expr)
}
