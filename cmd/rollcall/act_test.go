package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
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

func TestPauseAndResumeInRedisHoldALeader(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		one := w.replica("one")
		code, stdout, stderr := w.run("pause", "upgrade of Redis", "--for", "30m", "--who", "ann")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Regexp(t, `^paused for 30m, until 20`, stdout)
		until(t, "the replica knows", func() bool { return one.jan.Status().Paused != nil })
		require.Equal(t, "ann", one.jan.Status().Paused.Who)
		require.Equal(t, "upgrade of Redis", one.jan.Status().Paused.Why)
		h := ask[inspect.Status](w, "status").Hold
		require.WithinDuration(t, time.Now().Add(30*time.Minute), h.Until, time.Minute)

		code, stdout, _ = w.run("resume")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "not paused\n", stdout)
		until(t, "the replica knows", func() bool { return one.jan.Status().Paused == nil })
		code, _, _ = w.run("resume")
		require.Equal(t, cli.ExitOK, code, "also if there is none")

		code, stdout, _ = w.run("pause", "for ever")
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, stdout, "until it is resumed")
		require.EqualValues(t, -1, w.client.PTTL(t.Context(), w.keys.Paused()).Val())
	})
}

func TestAReplicaSweepsAndResignsForItsToken(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		one := w.replica("one")
		until(t, "one leads", func() bool { return one.jan.Status().Leading })
		two := w.replica("two")
		// two are away
		urls := "http://127.0.0.1:1," + two.serve(t) + "," + one.serve(t) + ",http://127.0.0.1:2"
		act := func(args ...string) (int, string, string) {
			return w.run(append(args, "--http", urls, "--admin-token", adminToken)...)
		}

		var s struct{ Replicas []answer }
		w.answer(&s, "status", "--http", urls)
		require.Equal(t, "v1.2.3", s.Replicas[2].Version)
		require.True(t, s.Replicas[2].Leads)
		require.NotEmpty(t, s.Replicas[3].Error)

		until(t, "no hold stands", func() bool { return ask[inspect.Status](w, "status").Hold == nil })
		code, stdout, stderr := act("sweep", "--sweep", "registry", "--dry-run")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Regexp(t, `(?m)^registry +done, dry run `, stdout)
		code, _, stderr = act("sweep", "--owner", "one")
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, stderr, "one lives")
		code, _, stderr = act("sweep", "--owner", "three")
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, stderr, "no instance is known by the name three")
		code, _, stderr = act("sweep", "--sweep", "three")
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, stderr, "answers 400")
		w.writes("dead", 0, imei)
		code, stdout, stderr = act("sweep", "--owner", "dead", "--json")
		require.Equal(t, cli.ExitOK, code, stderr)
		var did struct{ Reports []janitor.Report }
		require.NoError(t, json.Unmarshal([]byte(stdout), &did))
		require.NotEmpty(t, did.Reports)
		var found inspect.Found
		require.Equal(t, cli.ExitNo, w.answer(&found, "find", imei))
		require.Empty(t, found.Owner)

		code, _, stderr = act("resign")
		require.Equal(t, cli.ExitOK, code, stderr)
		until(t, "two leads", func() bool {
			s := ask[inspect.Status](w, "status")
			return s.Leader != nil && s.Leader.Instance == "two"
		})

		code, _, stderr = w.run("resign", "--http", urls, "--admin-token", "another-token-than-that")
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, stderr, "answers 401")
	})
}

func TestWaitEndsWhenTheFleetIsAsAskedFor(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		code, stdout, _ := w.run("wait", "--leader", "--timeout=1s")
		require.Equal(t, cli.ExitNo, code)
		require.Contains(t, stdout, "nobody leads")
		w.writes("dead", 0, imei)
		code, stdout, _ = w.run("wait", "--gone", "dead", "--timeout=1s")
		require.Equal(t, cli.ExitNo, code)
		require.Contains(t, stdout, "1 entry still name it")

		w.replica("one")
		code, stdout, _ = w.run("wait", "--leader")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "one leads\n", stdout)
		code, stdout, _ = w.run("wait", "--converged")
		require.Equal(t, cli.ExitOK, code, stdout)
		require.Contains(t, stdout, "each of 0 entries")
		require.Contains(t, stdout, "evicted within the last hour: 1")
		w.writes("two", time.Hour)
		require.NoError(t, rw.Client.SAdd(t.Context(), w.keys.Roster(), "two").Err())
		require.NoError(t, rw.Client.SAdd(t.Context(), w.keys.Devices("two"), imei).Err())
		code, stdout, _ = w.run("wait", "--converged", "--timeout=1s")
		require.Equal(t, cli.ExitNo, code)
		require.Contains(t, stdout, "1 device of an index has no entry that names its owner")
		require.NoError(t, rw.Client.SRem(t.Context(), w.keys.Roster(), "two").Err())
		require.NoError(t, rw.Client.Del(t.Context(), w.keys.Devices("two"), w.keys.Heartbeat("two")).Err())
		code, stdout, _ = w.run("wait", "--converged", "--at-least", "1", "--timeout=4s")
		require.Equal(t, cli.ExitNo, code)
		require.Contains(t, stdout, "0 entries, 1 are expected; each of 0 entries names a living owner")
		code, _, stderr := w.run("wait", "--leader", "--at-least", "1")
		require.Equal(t, cli.ExitUsage, code)
		require.Contains(t, stderr, "--at-least: expected --converged beside it")
		code, stdout, _ = w.run("wait", "--gone", "dead", "--json")
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, stdout, `"done": true`)
	})
}

func TestHelpAndVersionAreVerbsToo(t *testing.T) {
	t.Parallel()
	w := &world{t: t}
	same := func(verb, flags []string) {
		t.Helper()
		code, stdout, stderr := w.runPlainly(verb...)
		require.Equal(t, cli.ExitOK, code, stderr)
		_, want, _ := w.runPlainly(flags...)
		require.Equal(t, want, stdout)
		require.NotEmpty(t, stdout)
	}
	same([]string{"help"}, []string{"-h"})
	same([]string{"help", "doctor"}, []string{"doctor", "-h"})
	same([]string{"version"}, []string{"--version"})
	code, _, stderr := w.runPlainly("help", "doktor")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, stderr, "did you mean doctor?")
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
