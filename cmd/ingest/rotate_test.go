package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// operator has a folder with the password's file, and follows pages of docs.
type operator struct {
	t   *testing.T
	rdb *redis.Conn // its own connection, as the user default
	dir string
	env []string
}

// shell runs a line in a shell, in the operator's folder.
func (o *operator) shell(line string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "sh", "-ec", line)
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(o.t, err, "%s: %s", line, stderr.String())
	return string(out)
}

// redisCLI acts as redis-cli for a page's line, which begins with its name.
func (o *operator) redisCLI(line string) any {
	o.t.Helper()
	words := strings.Split(o.shell(strings.Replace(line, "redis-cli", `printf '%s\n'`, 1)), "\n")
	var args []any
	for _, word := range words[:len(words)-1] {
		args = append(args, word)
	}
	answer, err := o.rdb.Do(o.t.Context(), args...).Result()
	require.NoError(o.t, err, line)
	return answer
}

// fenced returns the blocks of shell commands under a heading of a page.
func fenced(t *testing.T, page, heading string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, ok, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// redisLines runs the lines of a block that begin with redis-cli.
func (o *operator) redisLines(block string) {
	o.t.Helper()
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, "redis-cli ") {
			o.redisCLI(line)
		}
	}
}

// ofMetrics returns these replicas' values of a metric, given its line's beginning with all
// labels.
func ofMetrics(t *testing.T, metric string, replicas ...*process.Process) (values []float64) {
	t.Helper()
	for _, r := range replicas {
		_, body := asking(t, r).Get("/metrics")
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (.*)$`).FindStringSubmatch(body)
		require.NotNil(t, found, metric)
		v, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		values = append(values, v)
	}
	return values
}

// The commands are those of the pages, and Redis has the rights of docs/redis.md.
func TestARedisPasswordIsRotatedUnderLoadByTheRunbook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acls := filepath.Join(dir, "users.acl")
	require.NoError(t, os.WriteFile(acls, nil, 0o600))
	server := redistest.Start(t, "--aclfile", acls)
	rdb := server.Client()
	conn := rdb.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	o := &operator{t: t, rdb: conn, dir: dir}
	rights := fenced(t, "redis.md", "Rights")[0]
	password := filepath.Join(dir, "redis-password")
	o.redisCLI(strings.Replace(rights, "PASSWORD", "first", 1))
	require.NoError(t, os.WriteFile(password, []byte("first\n"), 0o600))

	args := append([]string{
		"--redis-url=redis://rollcall@" + server.Addr(), "--redis-password-file=" + password}, quick...)
	replicas := []*process.Process{servingChild(t, args...), servingChild(t, args...)}
	var addrs []string
	for _, r := range replicas {
		addrs = append(addrs, r.Said("listening for devices", "addr"))
	}
	f := simulating(t, sim.Config{
		Devices: 40, Targets: addrs, Interval: 200 * time.Millisecond, Records: 2, HalfOpen: 0.05,
		LadderUnit: 20 * time.Millisecond, Seed: 3,
	})
	f.await(t, func(c sim.Counts) bool { return c.Connected >= 35 && c.Acked > 100 })
	more := func() {
		t.Helper()
		before := f.Counts()
		f.await(t, func(now sim.Counts) bool {
			return now.Acked > before.Acked+100 && now.Reconnects > before.Reconnects+5
		})
	}
	more()
	subscribers := func() int {
		return len(strings.Split(strings.TrimSpace(
			rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Val().(string)), "\n"))
	}
	subscribed := subscribers()
	require.Positive(t, subscribed)

	steps, old := fenced(t, "operate.md", "Rotate a password"), "first"
	for _, kind := range []string{"openssl", "a kind that openssl never makes"} {
		o.env = []string{"OLD=" + old, "NEW=new $é'\""}
		if kind == "openssl" {
			o.env[1] = "NEW=" + strings.TrimSpace(o.shell("openssl rand -hex 32"))
		}
		o.redisLines(steps[0])
		replaced := float64(time.Now().UnixMilli()) / 1000
		o.shell(strings.SplitN(steps[1], "\n", 2)[0])
		require.Contains(t, steps[2], "settings_file_taken_timestamp_seconds")
		require.Eventually(t, func() bool {
			at := ofMetrics(t, `settings_file_taken_timestamp_seconds{setting="REDIS_PASSWORD_FILE"}`, replicas...)
			return slices.Min(at) > replaced
		}, patience, 50*time.Millisecond)
		require.Equal(t, []float64{0, 0},
			ofMetrics(t, `settings_file_failing{setting="REDIS_PASSWORD_FILE"}`, replicas...))
		o.redisLines(steps[3])
		more()
		// Every connection is new: both clients', and those of blocking readers and subscribers.
		require.Positive(t, o.redisCLI("redis-cli CLIENT KILL USER rollcall"))
		more()
		require.Eventually(t, func() bool { return subscribers() >= subscribed }, patience,
			20*time.Millisecond)
		require.Empty(t, o.redisCLI("redis-cli ACL LOG"), "somebody tries a former password")
		_, old, _ = strings.Cut(o.env[1], "=")
	}
	f.stop()
	require.Greater(t, f.requireStored(t, rdb), 500)
	for _, r := range replicas {
		require.True(t, r.Runs())
		require.NotContains(t, r.Log(), "WRONGPASS")
		require.NotContains(t, r.Log(), "NOAUTH")
	}
	server.Restart() // it has what ACL SAVE wrote
	require.Len(t,
		server.Client().Do(t.Context(), "ACL", "GETUSER", "rollcall").Val().(map[any]any)["passwords"], 1)
}
