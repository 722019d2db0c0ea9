package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

const adminToken = "0123456789abcdef"

// serve opens a replica's HTTP, as the programs do, and returns its URL.
func (r *replica) serve(t *testing.T) string {
	t.Helper()
	var h *console.HTTP
	h, err := console.ListenHTTP(t.Context(), console.HTTPConfig{
		Addr: "127.0.0.1:0", Tokens: func() []string { return []string{adminToken} }, Janitor: r.jan,
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Status: func() console.Stated {
			return console.Status{Instance: r.reg.Instance(), Version: "v1.2.3", HTTPAddr: h.Addr(),
				Registry: r.reg.Status(), Janitor: r.jan.Status()}
		},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return "http://" + h.Addr()
}

func TestWaitEndsWhenTheFleetIsAsAskedFor(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		w.writes("dead", 0, imei)
		w.tells(`
			3 wait --leader --timeout=1s ~ (?i)nobody leads
			3 wait --gone dead --timeout=1s ~ 1 entry still name it
			`)
		w.listened()
		w.replica("one")
		w.tells(`
			0 wait --leader ~ ^one leads$
			0 wait --converged ~ each of 0 entries(.*\n?)*evicted within the last hour: 1
			`)
		w.writes("two", time.Hour)
		w.tells(`
			0 redis SADD $ROSTER two
			0 redis SADD $DEVICES:two $IMEI
			3 wait --converged --timeout=1s ~ 1 device of an index has no entry that names its owner
			0 redis SREM $ROSTER two
			0 redis DEL $DEVICES:two $HEARTBEAT:two
			3 wait --converged --at-least 1 --timeout=2s ~ 0 entries, 1 are expected; each of 0 entries names a living owner
			2 wait --leader --at-least 1 ~ --at-least: expected --converged beside it
			0 wait --gone dead --json ~ "done": true
			`)
	})
}

func TestAWrongUseIsNamed(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"statsu":                      `unknown command "statsu": did you mean status?`,
		"find":                        "expected an IMEI, got 0 arguments",
		"list":                        "expected the name of an instance, got 0 arguments",
		"why a b":                     "expected an IMEI or a key, got 2 arguments",
		"pause":                       "expected a reason",
		"resign --http http://h":      "ADMIN_TOKEN: expected the replicas' token",
		"sweep":                       "--http: expected URLs of replicas",
		"resign --http h":             "--http: expected URLs of replicas with commas between them",
		"wait":                        "expected one of --leader, --converged and --gone ID, got 0",
		"log --since soon":            "--since: expected how long ago",
		"status --redis-url embedded": "expected the fleet's Redis",
	} {
		var stderr bytes.Buffer
		environ := []string{"REDIS_URL=redis://127.0.0.1:1"}
		code := rollcall().Execute(t.Context(), strings.Fields(args), environ, &bytes.Buffer{}, &stderr)
		require.Equal(t, cli.ExitUsage, code, args)
		require.Contains(t, stderr.String(), want, args)
	}
	var stdout bytes.Buffer
	require.Equal(t, cli.ExitOK, rollcall().Execute(t.Context(), nil, nil, &stdout, &bytes.Buffer{}))
	for _, c := range verbs() {
		require.Contains(t, stdout.String(), c.Name, "the help names each verb")
	}
}

func TestReportsAreShown(t *testing.T) {
	t.Parallel()
	var f fleet
	var table bytes.Buffer
	reports := []janitor.Report{
		{Sweep: "owners", Outcome: janitor.Done, Scanned: 44, Condemned: 44, Evicted: 43,
			Spared: map[janitor.SkipReason]int{"reowned": 1}, Seconds: 0.02},
		{Sweep: "registry", Outcome: janitor.Held, Reason: "gap", DryRun: true},
	}
	require.NoError(t, f.showReports(&table, reports))
	golden(t, "sweep.txt", table.String())
	reports = append(reports, janitor.Report{Sweep: "rooms", Outcome: janitor.Failed, Error: "no"})
	require.ErrorContains(t, f.showReports(&table, reports), "sweep rooms failed: no")
}
