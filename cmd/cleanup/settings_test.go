package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
)

func TestTheManualHasTheSettingsOfTheCode(t *testing.T) {
	t.Parallel()
	programtest.Tables(t, "../../docs/reference/settings.md", *update,
		map[string][]cli.Setting{"cleanup": new(settings).table()})
}

// loaded are settings from arguments and an environment.
func loaded(args, environ []string) (*settings, error) {
	s := new(settings)
	c := &cli.Command{Name: "cleanup", Settings: s.table(), Prefixes: prefixes, Check: s.check}
	return s, c.Load(args, environ)
}

var needed = []string{"REDIS_URL=embedded", "MONGODB_URI=mongodb://127.0.0.1/game"}

func TestNothingSetGivesTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	s, err := loaded(nil, needed)
	require.NoError(t, err)
	require.Len(t, s.rules, 4+4, "the built-in ones, with companions")
	s.Redis, s.rules = connect.Redis{}, nil
	require.Equal(t, &settings{
		Base: program.Base{HTTPAddr: "127.0.0.1:8080", ShutdownGrace: 10 * time.Second, LogLevel: slog.LevelInfo, LogFormat: "text"},
		Fleet: program.Fleet{Every: 5 * time.Minute, Prefix: "{cleanup}:", RedisShare: 0.25, HeartbeatInterval: 10 * time.Second,
			HeartbeatTTL: 30 * time.Second, LeaseTTL: 15 * time.Second, ScanCount: 1000, DeleteBatch: 500, Exists: 8},
		mongodbURI: "mongodb://127.0.0.1/game",
	}, s)
	require.Equal(t, "{cleanup}:janitor:leader", s.Layout().Lease())
}

func TestSettingsAreStored(t *testing.T) {
	t.Parallel()
	s, err := loaded(nil, []string{
		"REDIS_URL=redis://redis.example:6380/2", "RULES=" + rulesFile(t, ofTests), "CLEANUP_INTERVAL_MS=420000",
		"CLEANUP_DRY_RUN=true", "CLEANUP_PREFIX=tidy:",
	})
	require.NoError(t, err)
	require.Equal(t, "redis.example:6380/2", s.Redis.String())
	require.Equal(t, 7*time.Minute, s.Every)
	require.True(t, s.DryRun)
	require.Len(t, s.rules, 3)
	require.Equal(t, "tidy:janitor:log", s.Layout().Log())
}

func TestFaultsNameTheSettingAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	wrong := rulesFile(t, "rules:\n- name: a\n  keys: \"*\"\n  keepif: []\n- name: b\n")
	taken := rulesFile(t, strings.ReplaceAll(ofTests, "category: orphanedBotStates", "category: byRule"))
	own := rulesFile(t, strings.ReplaceAll(ofTests, `keys: "cart:{user}"`, `keys: "{{cleanup}}:janitor:{user}"`))
	uri := filepath.Join(t.TempDir(), "uri")
	require.NoError(t, os.WriteFile(uri, []byte("mongodb://ann:geheim@db/game\n"), 0o600))
	s, err := loaded(nil, []string{"REDIS_URL=embedded", "MONGODB_URI_FILE=" + uri})
	require.NoError(t, err)
	require.Equal(t, cli.Secret("mongodb://ann:geheim@db/game"), s.mongodbURI)
	calltest.Tells(t, func(environ ...string) (int, string) {
		base := slices.DeleteFunc(slices.Clone(needed), func(pair string) bool {
			name, _, _ := strings.Cut(pair, "=")
			return slices.Contains(environ, name+"=")
		})
		_, err := loaded(nil, append(base, environ...))
		var faults cli.Faults
		require.ErrorAs(t, err, &faults)
		return cli.ExitUsage, err.Error()
	}, `
		2 REDIS_URL= ~ REDIS_URL: expected the URL of your Redis
		2 MONGODB_URI= ~ MONGODB_URI: expected mongodb://host:27017/DATABASE, since these rules ask MongoDB: matches
		2 MONGODB_URI_FILE=$URI ~ MONGODB_URI and MONGODB_URI_FILE: expected one of the two, got both
		2 MONGODB_URI= MONGODB_URI_FILE=/nowhere/uri ~ MONGODB_URI_FILE: expected the path of a file that can be used
		2 CLEANUP_INTERVAL=5m CLEANUP_INTERVAL_MS=300000 ~ expected one of the two, got both
		2 HEARTBEAT_TTL=20s ~ HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL \(10s\), got 20s
		2 CLEANUP_INTREVAL=5m ~ CLEANUP_INTREVAL: no such setting
		2 CLEANUP_PREFIX={a}{b} ~ CLEANUP_PREFIX: expected a text of at most 100
		2 RULES=/nowhere/rules.yaml ~ RULES \(/nowhere/rules.yaml\): cannot be read: no such file
		2 RULES=$WRONG ~ line 3(.*\n)*.*line 4
		2 RULES=$WRONG ~ rules\[1\] "b"
		2 RULES=$TAKEN ~ no category may be named byRule
		2 RULES=$OWN ~ RULES \($OWN\):`, "$URI", uri, "$WRONG", wrong, "$TAKEN", taken, "$OWN", own)
}
