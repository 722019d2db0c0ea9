package inspect

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/needs"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// documented returns the user in docs/redis.md: its keys, channels and commands.
func documented(t *testing.T) (rules []any) {
	return redistest.User(t, "../../../docs/redis.md", "rollcall")[2:] // after `on` and the password
}

// A script that uses pcall continues without missing rights, and nobody would notice.
func TestTheDocumentedUserMayRunWhatScriptsRun(t *testing.T) {
	t.Parallel()
	calls := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	user, found := documented(t), 0
	for _, dir := range []string{"../../../internal/guard", "../../../registry", "../../../lease",
		"../../ingest/internal/commands", "../../../internal/timeline"} {
		files, err := filepath.Glob(dir + "/*.lua")
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
				found++
				name := "+" + strings.ToLower(call[1])
				require.True(t, slices.ContainsFunc(user, func(rule any) bool {
					return rule == name || strings.HasPrefix(rule.(string), name+"|")
				}), "%s in %s", name, file)
			}
		}
	}
	require.Greater(t, found, 50)
}

// rightOf returns the name of a right and its object: a key, a channel, or nothing.
func rightOf(command []string) (name, on string) {
	c := missing("user", command)
	return c.Name, objectOf(c)
}

func objectOf(c Finding) string {
	_, on, _ := strings.Cut(c.Sentence, " on ")
	on, _, _ = strings.Cut(on+": ", ": ")
	return strings.TrimRight(on, ".:")
}

func TestDoctorFindsEachRightThatLacksByItsOwnLine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "rollcall", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	reader := New(client, guard.Layout{})
	all := documented(t)
	user := func(rules []any) {
		t.Helper()
		args := append([]any{"ACL", "SETUSER", "rollcall", "reset", "on", ">secret"}, rules...)
		require.NoError(t, admin.Do(t.Context(), args...).Err())
	}
	lacking := func() (found []Finding) {
		t.Helper()
		d, err := reader.Doctor(t.Context())
		require.NoError(t, err)
		for _, c := range d.Checks {
			require.False(t, c.Name == "rights" && c.Level == Warning, c.Sentence)
			if strings.HasPrefix(c.Name, "rights:") {
				found = append(found, c)
			}
		}
		return found
	}
	for name, ask := range map[string][]any{"by ACL DRYRUN": {"+acl|dryrun", "+acl|whoami"}, "by a script": nil} {
		user(append(slices.Clone(all), ask...))
		require.Empty(t, lacking(), "%s: the documented user is fit", name)
		var patterns []string // of keys and channels
		met := map[string]bool{}
		for _, command := range commandsOf(needs.Programs(guard.Layout{}, "")) {
			right, on := rightOf(command)
			for _, rule := range all {
				if p := rule.(string); on != "" && strings.ContainsAny(p[:1], "~&") &&
					strings.HasPrefix(p, "&") == slices.Contains([]string{"publish", "subscribe"}, right) {
					matched, err := path.Match(p[1:], on)
					require.NoError(t, err)
					if matched && !slices.Contains(patterns, p) {
						patterns = append(patterns, p)
					}
				}
			}
			// ping, multi and exec are checked by themselves; EVAL_RO is used by the check.
			if met[right] || ask == nil && right == "eval_ro" {
				continue
			}
			met[right] = true
			user(append(append(slices.Clone(all), ask...), "-"+right))
			found := lacking()
			require.NotEmpty(t, found, "%s: %s", name, right)
			for _, c := range found {
				require.Equal(t, "rights:"+right, c.Name, c.Sentence)
				require.Contains(t, c.Do, "+"+right)
			}
		}
		require.Greater(t, len(met), 30)
		require.Greater(t, len(patterns), 5)
		for _, p := range patterns {
			user(append(slices.DeleteFunc(slices.Clone(all), func(rule any) bool { return rule == p }), ask...))
			found := lacking()
			require.NotEmpty(t, found, "%s: %s", name, p)
			for _, c := range found {
				matched, err := path.Match(p[1:], objectOf(c))
				require.NoError(t, err)
				require.True(t, matched, "%s: %s: %s", name, p, c.Sentence)
			}
		}
	}
}

// afterwards is a hook that sees each command after its answer.
type afterwards func(redis.Cmder)

func (afterwards) DialHook(next redis.DialHook) redis.DialHook { return next }

func (afterwards) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (see afterwards) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		see(cmd)
		return err
	}
}

// older makes a server report an older version.
func older(cmd redis.Cmder) {
	if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
		info.SetVal(regexp.MustCompile(`redis_version:[0-9.]+`).ReplaceAllString(info.Val(), "redis_version:6.2.14"))
	}
}

func TestDoctorFindsRedis6(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	client.AddHook(afterwards(older))
	d, err := New(client, guard.Layout{Prefix: redistest.Prefix(t)}).Doctor(t.Context())
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, "Redis 6.2.14 is too old. Upgrade it to 7.0 or newer.", d.Checks[0].Text())
	require.NotEqual(t, Wrong, d.Checks[1].Level)
}
