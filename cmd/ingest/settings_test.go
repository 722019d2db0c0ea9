package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
)

// load calls Load with a Redis, unless the case has one.
func load(args, environ []string) (*settings, error) {
	named := func(s string) bool { return strings.Contains(s, "redis-url") || strings.HasPrefix(s, "REDIS_URL=") }
	if !slices.ContainsFunc(args, named) && !slices.ContainsFunc(environ, named) {
		environ = append(slices.Clip(environ), "REDIS_URL=embedded")
	}
	s, _, err := loaded(args, environ)
	return s, err
}

func TestWithoutARedisNothingStarts(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{nil, {"REDIS_URL="}, {"REDIS_UR=redis://127.0.0.1"}} {
		_, _, err := loaded(nil, environ)
		var faults cli.Faults
		require.ErrorAs(t, err, &faults)
		require.Equal(t, cli.Faults{"REDIS_URL: expected the URL of your Redis, such as redis://host:6379/0; for trying out embedded, a Redis inside the process; it is not set"}, faults)
	}
	_, _, err := loaded([]string{"--redis-url="}, []string{"REDIS_URL=embedded"})
	require.ErrorContains(t, err, "--redis-url: expected the URL of your Redis")
}

func TestNothingSetGivesTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	s, _, err := loaded(nil, []string{"PATH=/bin", "HOME=/root", "REDIS_URL=embedded"})
	require.NoError(t, err)
	require.True(t, s.Redis.Embedded())
	require.Equal(t, "embedded", s.Redis.String())
	s.Redis = connect.Redis{}
	require.Equal(t, &settings{
		ingestAddr: ":5027", ingestMaxConns: 100000, ingestFirstFrame: time.Minute, ingestTLSAddr: "off", ingestTLSExpired: "refuse", ingestProxyAddr: "off", deviceAuthority: "everybody", Base: program.Base{HTTPAddr: "127.0.0.1:8080", ShutdownGrace: 10 * time.Second, LogLevel: slog.LevelInfo, LogFormat: "text"},
		Fleet: program.Fleet{HeartbeatInterval: 30 * time.Second, HeartbeatTTL: 90 * time.Second,
			Every: time.Minute, LeaseTTL: 15 * time.Second, ScanCount: 1000, DeleteBatch: 500, Exists: 8, RedisShare: 0.25, Partitions: 1},
		reverseIndex: true, telemetryMaxLen: 1000000,
	}, s)
	require.True(t, s.devices())
}

func TestEverySettingCanBeGivenBothWays(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"REDIS_URL": "redis://redis.example:6380/2", "INSTANCE_ID": "ingest-3", "INGEST_ADDR": "off",
		"INGEST_MAX_CONNS": "7", "INGEST_FIRST_FRAME": "2m", "DEVICE_AUTHORITY": "set", "INGEST_TLS_EXPIRED": "accept",
		"INGEST_TLS_ADDR": ":5028", "INGEST_TLS_CERT": "c.pem", "INGEST_TLS_KEY": "k.pem", "INGEST_TLS_CLIENT_CA": "ca.pem", "INGEST_PROXY_TLS": "true",
		"INGEST_PROXY_ADDR": ":5029", "INGEST_PROXY_TRUSTED": "10.0.0.0/8, 192.0.2.7/24", "HTTP_ADDR": "[::1]:9000", "HTTP_HOSTS": "fleet.example.org", "ADMIN_TOKEN": "opensesameopensesame",
		"HEARTBEAT_INTERVAL": "1s", "HEARTBEAT_TTL": "4s", "JANITOR_INTERVAL": "5s", "JANITOR_LEASE_TTL": "6s",
		"JANITOR_SCAN_COUNT": "8", "JANITOR_DELETE_BATCH": "9", "JANITOR_EXISTS_CONCURRENCY": "10",
		"JANITOR_REDIS_SHARE": "1", "JANITOR_DRY_RUN": "true", "REGISTRY_REVERSE_INDEX": "false", "REGISTRY_PARTITIONS": "64", "TELEMETRY_STREAMS": "32",
		"TELEMETRY_MAXLEN": "11", "SHUTDOWN_GRACE": "12s", "LOG_LEVEL": "debug", "LOG_FORMAT": "json",
	}
	var environ, flags []string
	for _, row := range new(settings).table() {
		if row.Name == "JANITOR_INTERVAL_MS" {
			continue
		}
		if strings.HasSuffix(row.Name, "_FILE") { // in another's place: tested in cmd/internal/connect
			continue
		}
		v, ok := values[row.Name]
		require.True(t, ok, "the test knows no value for %s", row.Name)
		environ = append(environ, row.Name+"="+v)
		flags = append(flags, "--"+flagOf(row)+"="+v)
	}
	want, err := load(nil, environ)
	require.NoError(t, err)
	require.Equal(t, "redis.example:6380/2", want.Redis.String())
	require.True(t, want.devices(), "by TLS and through proxies")
	require.Equal(t, "[10.0.0.0/8 192.0.2.0/24]", fmt.Sprint(want.ingestProxyTrusted))
	require.Equal(t, cli.Secret("opensesameopensesame"), want.AdminToken)
	got, err := load(flags, nil)
	require.NoError(t, err)
	require.Equal(t, want.Redis.String(), got.Redis.String())
	got.Redis = want.Redis // holds functions, which are never equal
	require.Equal(t, want, got)
}

func TestAFlagWinsOverTheEnvironment(t *testing.T) {
	t.Parallel()
	s, err := load([]string{"--heartbeat-ttl", "5m", "--janitor-dry-run", "--redis-url=embedded"},
		[]string{"HEARTBEAT_TTL=nonsense", "JANITOR_DRY_RUN=false", "REDIS_URL=redis://elsewhere",
			"JANITOR_INTERVAL_MS=1500"})
	require.NoError(t, err)
	require.Equal(t, 1500*time.Millisecond, s.Every)
	require.Equal(t, 5*time.Minute, s.HeartbeatTTL)
	require.True(t, s.DryRun)
	require.True(t, s.Redis.Embedded())
}

func TestFaultsNameTheSettingAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	const tls = "INGEST_TLS_CERT and INGEST_TLS_KEY with it"
	for _, c := range [][2]string{
		{"HEARTBEAT_TTL=80s", "HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL (30s), got 1m20s"},
		{"INGEST_TLS_ADDR=:5028 INGEST_TLS_CERT=c.pem", "INGEST_TLS_ADDR: expected " + tls},
		{"INGEST_TLS_CLIENT_CA=ca.pem", "INGEST_TLS_CLIENT_CA: expected INGEST_TLS_ADDR or INGEST_PROXY_TLS with it"},
		{"INGEST_PROXY_TLS=true INGEST_PROXY_ADDR=:5029 INGEST_PROXY_TRUSTED=10.0.0.0/8",
			"INGEST_PROXY_TLS: expected " + tls},
		{"INGEST_PROXY_TLS=true", "INGEST_PROXY_TLS: expected INGEST_PROXY_ADDR with it"},
		{"INGEST_PROXY_ADDR=:5029", "INGEST_PROXY_ADDR: expected INGEST_PROXY_TRUSTED with it"},
		{"INGEST_PROXY_ADDR=:5029 INGEST_PROXY_TRUSTED=10.0.0.1", "INGEST_PROXY_TRUSTED: expected CIDRs"},
		{"DEVICE_AUTHORTY=set", "DEVICE_AUTHORTY: no such setting"},
		{"JANITOR_INTERVALL=60s", "JANITOR_INTERVALL: no such setting"},
	} {
		_, err := load(nil, strings.Fields(c[0]))
		var faults cli.Faults
		require.ErrorAs(t, err, &faults, c[0])
		require.Len(t, faults, 1)
		require.Contains(t, faults[0], c[1])
	}
}

func TestEachSettingRefusesWhatItCannotMean(t *testing.T) {
	t.Parallel()
	for wrong := range strings.FieldsSeq(`
		INGEST_ADDR=:65536 INGEST_MAX_CONNS=0 INGEST_FIRST_FRAME=0s INGEST_TLS_ADDR=5028 INGEST_TLS_EXPIRED=maybe
		INGEST_PROXY_ADDR=host INGEST_PROXY_TRUSTED=10.0.0.1 INGEST_PROXY_TLS=2 DEVICE_AUTHORITY=some
		HEARTBEAT_INTERVAL=1ms HEARTBEAT_TTL=90 JANITOR_INTERVAL=1ms JANITOR_INTERVAL_MS=60s JANITOR_LEASE_TTL=1ms
		JANITOR_SCAN_COUNT=0 JANITOR_DELETE_BATCH=1001 JANITOR_EXISTS_CONCURRENCY=0 JANITOR_REDIS_SHARE=2
		JANITOR_DRY_RUN=maybe REGISTRY_REVERSE_INDEX=2 REGISTRY_PARTITIONS=12 TELEMETRY_STREAMS=2048
		TELEMETRY_MAXLEN=0 SHUTDOWN_GRACE=10 LOG_LEVEL=loud LOG_FORMAT=xml HTTP_ADDR=:65536
		REDIS_URL=http://a:7000 REDIS_URL=localhost:6379 REDIS_URL=redis://a/x REDIS_URL=redis://a:70000
		REDIS_URL=redis://a?master_name=m&route_by_latency=true REDIS_URL=redis://a?master_name=m&route_randomly=true`) {
		name, _, _ := strings.Cut(wrong, "=")
		_, err := load(nil, []string{wrong})
		require.ErrorContains(t, err, name+": expected", wrong)
	}
}

func TestWhatKubernetesPutsIntoTheEnvironmentIsNoFault(t *testing.T) {
	t.Parallel()
	var environ []string
	for _, service := range []string{"INGEST", "JANITOR", "HEARTBEAT_API", "TELEMETRY"} {
		for _, rest := range []string{
			"_SERVICE_HOST=10.0.0.1", "_SERVICE_PORT=5027", "_SERVICE_PORT_DEVICES=5027", "_PORT=tcp://10.0.0.1:5027",
			"_PORT_5027_TCP=tcp://10.0.0.1:5027", "_PORT_5027_TCP_PROTO=tcp", "_PORT_5027_TCP_PORT=5027", "_PORT_5027_TCP_ADDR=10.0.0.1",
		} {
			environ = append(environ, service+rest)
		}
	}
	_, err := load(nil, append(environ, "REGISTRY_URL=registry.example", "LOG_COLOUR=1", "HEARTBEAT_TTL="))
	require.NoError(t, err)
}

// The password is in every place where an operator may misplace it.
func TestNoPasswordAppearsAnywhere(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"redis://:hunter2@host:port", "redis://:hunter2@host:6379/x", "redis://:hun#hunter2@host", "redis://:hunter2?x@host",
		"redis://:x/hunter2@host", "redis://user:hunter2@ho st", "hunter2@host", "redis://:hunter2", "http://:hunter2@host",
		"redis://host?password=hunter2", "redis://host?master_name=m&password=hunter2&nonsense=1", "redis://host?addr=hunter2@x",
		"redis://u:hunter2@host?master_name=m&addr=hunter2", "redis://:hunter2@host?pool_size=many", "redis://:%zzhunter2@host",
		"redis://host#hunter2", "redis://u#hunter2@host:6379/0",
	} {
		for _, place := range []struct{ args, environ []string }{
			{nil, []string{"REDIS_URL=" + url}},
			{[]string{"--redis-url", url}, nil},
			{[]string{"--redis-url=" + url}, nil},
			{[]string{"--redis-ulr=" + url}, nil},
			{[]string{"--redis-url" + url}, nil},
			{[]string{"--redis-ulr", url}, nil},
			{[]string{url}, nil},
			{[]string{"--http-addr", "redis://:hunter2@host"}, nil},
			{nil, []string{"ADMIN_TOKEN=hunter2hunter2 \n"}},
			{nil, []string{"ADMIN_TOKEN=hunter2"}},
		} {
			_, err := load(place.args, place.environ)
			require.Error(t, err, url)
			require.NotContains(t, err.Error(), secret, url)
		}
	}

	environ := []string{"REDIS_URL=redis://user:hunter2@host?master_name=m&username=u&password=hunter2", "ADMIN_TOKEN=hunter2hunter2hunter2"}
	s, c, err := loaded(nil, environ)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, program.Serving(c, &s.Base, func(context.Context, *slog.Logger) error { return nil })(t.Context(), io.Discard, &out))
	require.Contains(t, out.String(), "settings.admin_token=(set)")
	require.Contains(t, out.String(), "m/0 by sentinels host:6379")
	require.NoError(t, json.NewEncoder(&out).Encode(s.AdminToken))
	fmt.Fprintf(&out, "%v %+v %#v %s", s.AdminToken, s.AdminToken, s.AdminToken, s.Redis)
	require.NotContains(t, out.String(), secret)
}

func TestHelpShowsEverySettingWithItsDefault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"--help"}, nil, &out, io.Discard))
	for _, row := range new(settings).table() {
		def := cmp.Or(row.Default, "empty")
		if row.Required {
			def = "none, required"
		}
		require.Contains(t, out.String(), "--"+flagOf(row)+", "+row.Name+" (default: "+def+")\n")
	}
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 81)
	}
}

func flagOf(row cli.Setting) string {
	return strings.ReplaceAll(strings.ToLower(row.Name), "_", "-")
}
