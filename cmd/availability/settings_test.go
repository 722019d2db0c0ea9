package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
)

func TestTheManualHasTheSettingsOfTheCode(t *testing.T) {
	t.Parallel()
	programtest.Tables(t, "../../docs/reference/settings.md", *update, map[string][]cli.Setting{"availability": new(settings).table()})
}

func TestHelpIsAsItWas(t *testing.T) {
	t.Parallel()
	const golden = "testdata/help.txt"
	code, help, _ := says(t, "-h")
	require.Equal(t, cli.ExitOK, code)
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(help), 0o644))
		return
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), help, "renew it with: go test ./cmd/availability -run TestHelp -update")
	for _, row := range new(settings).table() {
		require.Contains(t, help, ", "+row.Name+" (default")
	}
}

// loaded are settings from arguments and an environment.
func loaded(args, environ []string) (*settings, error) {
	s := new(settings)
	c := &cli.Command{Name: "availability", Settings: s.table(), Prefixes: prefixes, Check: s.check}
	return s, c.Load(args, environ)
}

var needed = []string{"REDIS_URL=embedded", "DATABASE_URL=postgres://u:geheim@db/app", "JWT_HS256_SECRET=" + secret}

func TestNothingSetGivesTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	s, err := loaded(nil, needed)
	require.NoError(t, err)
	s.Redis = connect.Redis{}
	require.Equal(t, &settings{
		Base: program.Base{
			HTTPAddr: "127.0.0.1:8080", ShutdownGrace: 10 * time.Second, LogLevel: slog.LevelInfo, LogFormat: "text",
		},
		databaseURL: "postgres://u:geheim@db/app", jwtSecret: secret, migrate: "on", endings: api.Endings,
		offlineInterval: 30 * time.Second, reconcileInterval: 5 * time.Minute, mirrorInterval: time.Minute,
		Fleet: program.Fleet{RedisShare: 0.25, LeaseTTL: 15 * time.Second, HeartbeatInterval: 10 * time.Second, HeartbeatTTL: 30 * time.Second},
	}, s)
}

func TestEverySettingCanBeGivenBothWays(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, []byte(`{}`), 0o600))
	values := map[string]string{
		"REDIS_URL": "redis://redis.example:6380/2", "INSTANCE_ID": "availability-3", "HTTP_ADDR": "[::1]:9000", "HTTP_HOSTS": "fleet.example.org",
		"ADMIN_TOKEN": "opensesameopensesame", "SHUTDOWN_GRACE": "12s", "LOG_LEVEL": "debug", "LOG_FORMAT": "json",
		"DATABASE_URL": "postgresql://db:5433/app?pool_max_conns=9", "MIGRATE": "off", "JWT_HS256_SECRET": secret,
		"JWT_JWKS": keys, "JWT_AUDIENCE": "dispatch", "JWT_ISSUER": "https://auth.example", "OPERATOR_ADDR": "[::1]:9001",
		"SESSION_END_STATUSES": "completed=ended,cancelled", "MITRA_AUTO_OFFLINE_SWEEP_SECONDS": "7", "VALKEY_ONLINE_MIRROR_SWEEP_SECONDS": "77",
		"HEARTBEAT_MIRROR_INTERVAL_SECONDS": "0.5", "AVAILABILITY_PREFIX": "{a}:", "AVAILABILITY_REDIS_SHARE": "1",
		"AVAILABILITY_LEASE_TTL": "6s", "HEARTBEAT_INTERVAL": "1s", "HEARTBEAT_TTL": "4s",
	}
	var environ, args []string
	for _, row := range new(settings).table() {
		if strings.HasSuffix(row.Name, "_FILE") { // in another's place: tested in cmd/internal/connect
			continue
		}
		v, ok := values[row.Name]
		require.True(t, ok, "the test knows no value for %s", row.Name)
		environ = append(environ, row.Name+"="+v)
		args = append(args, "--"+strings.ReplaceAll(strings.ToLower(row.Name), "_", "-")+"="+v)
	}
	want, err := loaded(nil, environ)
	require.NoError(t, err)
	got, err := loaded(args, nil)
	require.NoError(t, err)
	require.Equal(t, want.Redis.String(), got.Redis.String())
	got.Redis = want.Redis // holds functions, which are never equal
	require.Equal(t, want, got)
	require.Equal(t, 7*time.Second, got.offlineInterval)
	require.Equal(t, 77*time.Second, got.reconcileInterval)
	require.Equal(t, 500*time.Millisecond, got.mirrorInterval)
	require.Equal(t, "off", got.migrate)
	require.Equal(t, map[string]string{"completed": "ended", "cancelled": "cancelled"}, got.endings)
	require.Equal(t, "{a}:janitor:leader", got.Layout().Lease())
}

// wrong are environments, a line each: what is wrong, what is set, and what the fault says.
const wrong = `
	no Redis | REDIS_URL= | REDIS_URL: expected the URL of your Redis
	no database | DATABASE_URL= | DATABASE_URL: expected a URL such as postgres://
	another database | DATABASE_URL=mysql://u:geheim@db/app | DATABASE_URL: expected a URL such as postgres://
	a database URL that is none | DATABASE_URL=postgres://u:gehe im%@db:port/app | special characters of the password escaped; the value is not shown
	a pool that is no number | DATABASE_URL=postgres://u:geheim@db/app?pool_max_conns=x | DATABASE_URL: expected
	nobody could call | JWT_HS256_SECRET= | JWT_HS256_SECRET, JWT_JWKS: expected one of the two
	a secret of 31 bytes | JWT_HS256_SECRET={short} | JWT_HS256_SECRET: expected at least 32 bytes
	a secret with a line break | JWT_HS256_SECRET={secret}{newline} | JWT_HS256_SECRET: expected no spaces
	keys that are not there | JWT_JWKS=/nowhere/keys.json | JWT_JWKS: expected an http(s) URL, or a file that is there
	MIGRATE=yes | MIGRATE=yes | MIGRATE: expected on or off, got "yes"
	an interval with its unit | MITRA_AUTO_OFFLINE_SWEEP_SECONDS=30s | a number of seconds from 0.05 to 86400
	minutes for seconds | VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=300m | without a unit
	hours before seconds | MITRA_AUTO_OFFLINE_SWEEP_SECONDS=1h5 | without a unit
	microseconds | HEARTBEAT_MIRROR_INTERVAL_SECONDS=90000u | without a unit
	a signed number | HEARTBEAT_MIRROR_INTERVAL_SECONDS=+30 | without a unit
	a number in hexadecimal | HEARTBEAT_MIRROR_INTERVAL_SECONDS=0x1p4 | without a unit
	a number with an exponent | HEARTBEAT_MIRROR_INTERVAL_SECONDS=3e1 | without a unit
	a fraction alone | HEARTBEAT_MIRROR_INTERVAL_SECONDS=.5 | without a unit
	no number | HEARTBEAT_MIRROR_INTERVAL_SECONDS=NaN | without a unit
	a space before it | HEARTBEAT_MIRROR_INTERVAL_SECONDS= 30 | without a unit
	keys at no host | JWT_JWKS=https://u:geheim@/keys | JWT_JWKS: expected an http(s) URL, special characters of a password escaped; the value is not shown
	a password that is cut off | JWT_JWKS=http://u:gehe/im@host/keys?k=geheim | JWT_JWKS: expected an http(s) URL, special characters
	a percent sign in it | JWT_JWKS=http://u:geheim%zz@host/keys | JWT_JWKS: expected an http(s) URL, special characters
	a scheme that is none | JWT_JWKS=htps://u:geheim@host/keys | JWT_JWKS: expected an http(s) URL, or a file that is there
	a status that ends nothing | SESSION_END_STATUSES=completed=active | SESSION_END_STATUSES: expected words with commas
	a word that ends nothing | SESSION_END_STATUSES=searching=ended | SESSION_END_STATUSES: expected words
	a word twice | SESSION_END_STATUSES=ended,ended=completed | SESSION_END_STATUSES: expected words
	no word | SESSION_END_STATUSES=ended, | SESSION_END_STATUSES: expected words
	no port for operators | OPERATOR_ADDR=127.0.0.1 | OPERATOR_ADDR: expected host:port
	a mistyped issuer | JWT_ISSUERS=x | JWT_ISSUERS: no such setting
	an interval of nothing | HEARTBEAT_MIRROR_INTERVAL_SECONDS=0 | a number of seconds from 0.05 to 86400
	an interval without end | VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=1e9 | a number of seconds from 0.05 to 86400
	a TTL below three intervals | HEARTBEAT_TTL=20s | HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL (10s), got 20s
	a mistyped setting | AVAILABILITY_PREFFIX=a | AVAILABILITY_PREFFIX: no such setting
	another mistyped setting | MITRA_AUTO_OFFLINE_SECONDS=30 | MITRA_AUTO_OFFLINE_SECONDS: no such setting
	a prefix of two tags | AVAILABILITY_PREFIX={a}{b} | AVAILABILITY_PREFIX: expected a text of at most 100
	a secret and its file | JWT_HS256_SECRET_FILE={secret file} | JWT_HS256_SECRET and JWT_HS256_SECRET_FILE: expected one of the two, got both
	a short secret in a file | JWT_HS256_SECRET= & JWT_HS256_SECRET_FILE={short file} | JWT_HS256_SECRET_FILE: expected the path of a file that can be used (at least 32 bytes
	two passwords | DATABASE_URL=postgres://u:geheim@h/d & DATABASE_PASSWORD_FILE={file} | DATABASE_PASSWORD_FILE: expected a DATABASE_URL without a password
	no file | DATABASE_URL=postgres://u@h/d & DATABASE_PASSWORD_FILE=/geheim | DATABASE_PASSWORD_FILE: expected the path of a file that can be used
	a Cluster without a tag | REDIS_URL=redis://a:1?addr=b:2 | AVAILABILITY_PREFIX: expected one with a hash tag, such as {availability}:`

func TestFaultsNameTheSettingAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, fmt.Sprint(len(text)))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for line := range strings.SplitSeq(strings.TrimSpace(wrong), "\n") {
		column := strings.Split(strings.NewReplacer(
			"{secret}", secret, "{short}", secret[1:], "{newline}", "\n", "{secret file}", file(secret),
			"{short file}", file("geheim"), "{file}", file("x"),
		).Replace(strings.TrimSpace(line)), " | ")
		given := strings.Split(column[1], " & ")
		t.Run(column[0], func(t *testing.T) {
			t.Parallel()
			environ := slices.DeleteFunc(slices.Clone(needed), func(pair string) bool {
				name, _, _ := strings.Cut(pair, "=")
				return slices.ContainsFunc(given, func(other string) bool { return strings.HasPrefix(other, name+"=") })
			})
			_, err := loaded(nil, append(environ, given...))
			var faults cli.Faults
			require.ErrorAs(t, err, &faults)
			require.Len(t, faults, 1)
			require.ErrorContains(t, err, column[2])
			require.NotContains(t, err.Error(), "geheim")
			require.NotContains(t, err.Error(), "gehe im")
			require.NotContains(t, err.Error(), secret[1:])
		})
	}
}
