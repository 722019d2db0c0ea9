package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

var update = flag.Bool("update", false, "write the tables into the manual")

func TestMain(m *testing.M) {
	logging.Disable() // as cli.Main does
	redistest.Main(m)
}

func start(t *testing.T, server *redistest.Server, more ...string) *programtest.Program {
	t.Helper()
	p := programtest.Start(t, func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		return command().Execute(ctx, args, nil, stdout, stderr)
	}, append([]string{
		"--redis-url=redis://" + server.Addr(), "--heartbeat-interval=300ms", "--heartbeat-ttl=1500ms",
		"--janitor-interval=1s", "--janitor-lease-ttl=1500ms",
	}, more...)...)
	p.Serves()
	return p
}

var state = programtest.Status[console.Status]

func TestTheDeadEntriesOfPlainWritersAreRemovedAndTheLivingStay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, keys, ctx := server.Client(), guard.Layout{Prefix: "chat:"}, t.Context()
	for i := range 100 {
		owner := []string{"living", "dead"}[i%2]
		require.NoError(t, rdb.HSet(ctx, keys.Registry(), fmt.Sprint("alice|", i), owner).Err())
	}
	require.NoError(t, rdb.Set(ctx, keys.Heartbeat("living"), "1", time.Hour).Err())

	first := start(t, server, "--janitor-prefix=chat:", "--instance-id=janitor-0", "--janitor-metrics-namespace=teltonika")
	second := start(t, server, "--janitor-prefix=chat:", "--instance-id=janitor-1")
	first.Await(func() bool { return rdb.HLen(ctx, keys.Registry()).Val() == 50 })
	for id, owner := range rdb.HGetAll(ctx, keys.Registry()).Val() {
		require.Equal(t, "living", owner, id)
	}
	first.Await(func() bool { return state(first).Janitor.Leading != state(second).Janitor.Leading })
	st := state(first)
	require.True(t, st.Ready, st.NotReady)
	require.Zero(t, st.Registry.Held)
	first.Await(func() bool { return state(first).Janitor.Witness.Evicted == 50 }, "its next tick reads the total")
	res, page := first.Ask("", http.MethodGet, "/", "")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, page, "none of its own")
	_, metrics := first.Ask("", http.MethodGet, "/metrics", "")
	require.Contains(t, metrics, "\nteltonika_registry_janitor_evicted_total{instance_id=\"dead\"} ")

	for _, p := range []*programtest.Program{first, second} {
		p.Stop()
		require.Equal(t, cli.ExitOK, p.Ends())
	}
	require.Zero(t, rdb.Exists(ctx, keys.Heartbeat("janitor-0"), keys.Heartbeat("janitor-1"), keys.Lease()).Val())
}

func TestAFleetInPartitionsIsRefusedAndItsNumberLeftToThoseWithSockets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, keys := server.Client(), guard.Layout{Prefix: "{rollcall}:"}
	refused := func(p *programtest.Program) {
		require.Equal(t, cli.ExitFailed, p.Ends())
		require.Contains(t, p.Log.String(), "another number of partitions")
	}
	p := start(t, server, "--janitor-prefix="+keys.Prefix)
	p.Await(func() bool { return rdb.Exists(t.Context(), keys.Lease()).Val() == 1 }, "it leads")
	require.Zero(t, rdb.Exists(t.Context(), keys.Partitions()).Val())
	require.NoError(t, rdb.Set(t.Context(), keys.Partitions(), 4, 0).Err())
	refused(p)
	refused(start(t, server, "--janitor-prefix="+keys.Prefix))
}

func loaded(environ ...string) (*settings, error) {
	s := new(settings)
	c := &cli.Command{Name: "janitor", Settings: s.table(), Prefixes: prefixes, Check: s.check}
	return s, c.Load(nil, environ)
}

func TestTheManualHasTheSettingsOfTheCode(t *testing.T) {
	t.Parallel()
	programtest.Tables(t, "../../docs/protocol.md", *update, map[string][]cli.Setting{"janitor": new(settings).table()})
}

func TestRedisAloneIsNeededAndTheDefaultsAreIngests(t *testing.T) {
	t.Parallel()
	s, err := loaded("REDIS_URL=redis://127.0.0.1:6379")
	require.NoError(t, err)
	s.Redis = connect.Redis{}
	require.Equal(t, &settings{
		Base: program.Base{HTTPAddr: "127.0.0.1:8080", ShutdownGrace: 10 * time.Second, LogLevel: slog.LevelInfo, LogFormat: "text"},
		Fleet: program.Fleet{HeartbeatInterval: 30 * time.Second, HeartbeatTTL: 90 * time.Second, Every: time.Minute,
			LeaseTTL: 15 * time.Second, RedisShare: 0.25, ScanCount: 1000, DeleteBatch: 500, Exists: 8},
	}, s)
	s, err = loaded("REDIS_URL=embedded", "JANITOR_INTERVAL_MS=7000")
	require.NoError(t, err)
	require.Equal(t, 7*time.Second, s.Every)
	for environ, want := range map[string]string{
		"":                        "REDIS_URL",
		"HEARTBEAT_TTL=60s":       "HEARTBEAT_TTL: expected at least three times",
		"JANITOR_SCAN=7":          "JANITOR_SCAN",
		"JANITOR_PREFIX={a}{b}":   "JANITOR_PREFIX",
		"JANITOR_REDIS_SHARE=1.1": "JANITOR_REDIS_SHARE",
	} {
		_, err = loaded(environ)
		require.ErrorContains(t, err, want)
	}
	_, err = loaded("REDIS_URL=redis://127.0.0.1:6379?addr=127.0.0.1:6380", "JANITOR_PREFIX=chat:")
	require.ErrorContains(t, err, "JANITOR_PREFIX: expected one with a hash tag")
	_, err = loaded("REDIS_URL=embedded", "JANITOR_INTERVAL_MS=7000", "JANITOR_INTERVAL=7s")
	require.ErrorContains(t, err, "JANITOR_INTERVAL")
}
