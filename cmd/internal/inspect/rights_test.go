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
	lacking := func() []Finding {
		t.Helper()
		_, found, err := reader.Rights(t.Context())
		require.NoError(t, err)
		return found
	}
	for name, ask := range map[string][]any{"by ACL DRYRUN": {"+acl|dryrun", "+acl|whoami"}, "by a script": nil} {
		user(append(slices.Clone(all), ask...))
		require.Empty(t, lacking(), "%s: the documented user is fit", name)
		var patterns []string // of keys and channels
		met := map[string]bool{}
		for _, r := range rightsOf(needs.Programs(guard.Layout{}, "")) {
			right, on := r.name, r.on
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
				require.Equal(t, right, c.Name, c.Sentence)
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

// after is a hook that sees each command after its answer.
func after(see func(redis.Cmder)) redistest.Intercept {
	return func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		for _, cmd := range cmds {
			see(cmd)
		}
		return err
	}
}
