package main

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

const adminToken = "secret-0123456789"

// quick settings make events fit into a test's time.
var quick = []string{"--heartbeat-interval=300ms", "--heartbeat-ttl=1200ms", "--janitor-interval=500ms", "--janitor-lease-ttl=1500ms"}

const ttlOfQuick = 1200 * time.Millisecond

func on(server *redistest.Server, more ...string) []string {
	return append([]string{"--redis-url=redis://" + server.Addr()}, more...)
}

func TestItServesOnARedisOfItsOwn(t *testing.T) {
	t.Parallel()
	p := serving(t)
	var body string
	p.Await(func() bool {
		_, body = p.Get("/")
		return strings.Contains(body, " leads</summary>term ")
	}, "the page shows the leader")
	for _, text := range []string{"All is well", "the fleet has just started; sweeping begins in 1m",
		`<a href="docs/devices.md#be-a-device">be a device</a>`, connect.EmbeddedNotice} {
		require.Contains(t, body, text)
	}
	d := p.connect(imei)
	acked, err := d.Send(t.Context(), teltonika.Codec8, sim.NewTrack(1).Next(3)...)
	require.NoError(t, err)
	require.Equal(t, 3, acked)

	p.Await(func() bool { return p.state().Ready })
	st := p.state()
	require.True(t, st.Redis.Embedded)
	require.True(t, st.Redis.Reachable)
	require.Contains(t, st.Redis.Warnings, connect.EmbeddedNotice)
	require.Equal(t, p.devices, st.Devices.Addr)
	require.Equal(t, 1, st.Devices.Connections)
	require.Equal(t, 1, st.Registry.Held)
	require.Contains(t, p.Log.String(), connect.EmbeddedNotice)
	p.Await(func() bool { return p.state().Janitor.Leading })
	require.NotEmpty(t, p.state().Janitor.Witness.ChecksOff)
	require.Contains(t, p.Log.String(), "checks are off")
	_, body = p.Get("/")
	require.Contains(t, body, "this replica leads")
	require.Contains(t, body, "Rollcall ingest ")
	require.Contains(t, body, "1 registered here · 1 sockets open at "+p.devices+", at most")
	require.Contains(t, body, "Registry of this replica")
	_, body = p.Get("/metrics")
	require.Contains(t, body, "janitor_leader 1\n")
	require.Contains(t, body, "ingest_connections 1\n")
	require.Contains(t, body, `ingest_records_total{codec="8"} 3`)
	require.Contains(t, body, "go_goroutines")
	// Other programs read these names.
	require.Contains(t, body, "teltonika_registry_held 1\n")
	require.Contains(t, body, "teltonika_registry_healed_total 0\n")
	for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
		require.Contains(t, body, `teltonika_registry_failures_total{op="`+op+`"} 0`)
	}

	p.Stop()
	require.Equal(t, exitOK, p.Ends())
	closed(t, d)
	require.Contains(t, p.Log.String(), "said goodbye")
}

func TestAReplicaLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, keys := server.Client(), registry.Layout{}
	p := serving(t, on(server, "--instance-id=ingest-1")...)
	d := p.connect(imei)
	stays := p.connect("352093081452251")
	require.Equal(t, "ingest-1", rdb.HGet(t.Context(), keys.Registry(), imei).Val())
	ttl := rdb.PTTL(t.Context(), keys.Heartbeat("ingest-1")).Val()
	require.LessOrEqual(t, ttl, 90*time.Second)
	require.Greater(t, ttl, 60*time.Second)
	_, err := stays.Send(t.Context(), teltonika.Codec8E, sim.NewTrack(1).Next(2)...)
	require.NoError(t, err)
	require.Equal(t, int64(2), rdb.XLen(t.Context(), gateway.Stream).Val())

	d.Close()
	p.Await(func() bool { return rdb.HGet(t.Context(), keys.Registry(), imei).Err() == redis.Nil })
	p.Await(func() bool { return rdb.Exists(t.Context(), keys.Lease()).Val() == 1 })
	p.Stop()
	require.Equal(t, exitOK, p.Ends())
	for _, key := range []string{keys.Registry(), keys.Heartbeat("ingest-1"), keys.Devices("ingest-1"), keys.Roster(), keys.Lease()} {
		require.Zero(t, rdb.Exists(t.Context(), key).Val(), key)
	}
}

func TestItServesBeforeRedisAnswersAndHealsWhenItDoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	p := serving(t, on(server, append(quick, "--instance-id=ingest-1")...)...)
	d := p.connect(imei)
	code, _ := p.Get("/healthz")
	require.Equal(t, 200, code)
	require.False(t, p.state().Redis.Reachable)
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == 200 }) // after a TTL of trying

	server.Restart()
	rdb := server.Client()
	p.Await(func() bool { return rdb.HGet(t.Context(), registry.Layout{}.Registry(), imei).Val() == "ingest-1" })
	_, err := d.Send(t.Context(), teltonika.Codec8, sim.NewTrack(1).Next(1)...)
	require.NoError(t, err)
	require.True(t, p.state().Redis.Reachable)
}

func TestOneNodeOfAClusterIsRefusedEvenIfItTurnsUpLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	p := start(t, "--redis-url=redis://"+server.Addr()+"?db=0")
	require.Equal(t, exitFailed, p.Ends())
	require.Contains(t, p.Log.String(), "one node of a Redis Cluster, and was not recognised")
	server.Kill()
	p = serving(t, on(server)...)
	server.Restart()
	require.Equal(t, exitFailed, p.Ends())
	require.Contains(t, p.Log.String(), "node of a Redis Cluster")
}

func TestAReplicaThatIsNotDividedEndsBesideAFleetThatIs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().Set(t.Context(), divided.Partitions(), 4, 0).Err())
	p := start(t, on(server)...)
	require.Equal(t, exitFailed, p.Ends())
	require.Contains(t, p.Log.String(), "{rollcall}:partitions says 4; set REGISTRY_PARTITIONS")
	require.Zero(t, server.Client().Exists(t.Context(), "instances:roster").Val(), "it never lived, so nobody reports its death")
	serving(t, on(server, "--registry-partitions=4")...).Await(func() bool {
		return server.Client().Exists(t.Context(), divided.Partition(0, 4).Roster()).Val() == 1
	})
}

func TestAnAddressInUseIsAFailure(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	p := start(t, "--ingest-addr="+taken.Addr().String())
	require.Equal(t, exitFailed, p.Ends())
	require.Contains(t, p.Log.String(), "INGEST_ADDR")
}

// Load rejects all of these. The parts' own errors matter all the same.
func TestAPartThatCannotBeMadeIsAFailure(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	for says, change := range map[string]func(*settings){
		"registry: HeartbeatTTL is 1s":              func(s *settings) { s.HeartbeatTTL = time.Second },
		"janitor: DeleteBatch is 5000":              func(s *settings) { s.DeleteBatch = 5000 },
		"ingest: INGEST_TLS_CERT, INGEST_TLS_KEY: ": func(s *settings) { s.ingestTLSAddr, s.ingestTLSCert = ":0", "/nowhere" },
		"INGEST_TLS_CLIENT_CA: block 1: x509": func(s *settings) {
			s.ingestTLSAddr, s.ingestTLSCert, s.ingestTLSKey, s.ingestTLSClientCA = ":0", cert, key, key
		},
	} {
		s, _, err := loaded([]string{"--redis-url=embedded", "--http-addr=127.0.0.1:0", "--ingest-addr=127.0.0.1:0"}, nil)
		require.NoError(t, err)
		change(s)
		require.ErrorContains(t, serve(t.Context(), s, slog.New(slog.DiscardHandler)), says)
	}
}

func TestARedisThatStandsStillDoesNotKeepAReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(server, append(quick, "--shutdown-grace=1m")...)...)
	d := p.connect(imei)
	busy := p.connect("352093081452251")
	p.Await(func() bool { return p.state().Janitor.Leading })
	server.Stop()
	defer server.Cont()
	frame := teltonika.AppendFrame(nil, teltonika.Codec8, sim.NewTrack(1).Next(1)...)
	require.NoError(t, busy.SendRaw(t.Context(), frame))
	asked := time.Now()
	p.Stop()
	require.Equal(t, exitOK, p.Ends())
	require.Less(t, time.Since(asked), time.Minute)
	closed(t, d)
}

// child runs the program as its own process, with a larger environment.
func child(t *testing.T, env []string, args ...string) *process.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = slices.Concat(os.Environ(), []string{asMain + "=1"}, env)
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// servingChild calls child and waits until devices can connect.
func servingChild(t *testing.T, args ...string) *process.Process {
	t.Helper()
	return servingWith(t, nil, args...)
}

func servingWith(t *testing.T, env []string, args ...string) *process.Process {
	t.Helper()
	p := child(t, env, append([]string{"--redis-url=embedded", "--http-addr=127.0.0.1:0",
		"--ingest-addr=127.0.0.1:0", "--log-format=json"}, args...)...)
	require.Eventually(t, func() bool { return p.Said("listening for devices", "addr") != "" }, patience, 5*time.Millisecond)
	return p
}

func TestASecondSignalStopsItAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := servingChild(t, on(server, "--shutdown-grace=1m")...)
	server.Stop() // so that there is something to wait for
	defer server.Cont()
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), `"msg":"stopping"`) }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return p.Signal(syscall.SIGTERM) != nil || !p.Runs() }, patience,
		50*time.Millisecond, "insisted")
	require.Equal(t, exitFailed, p.ExitCode())
	require.Contains(t, p.Log(), "second signal")
}
