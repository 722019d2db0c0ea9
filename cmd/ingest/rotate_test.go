package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
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
		resp, err := programtest.Client.Get("http://" + r.Said("serving HTTP", "addr") + "/metrics")
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (.*)$`).FindSubmatch(body)
		require.NotNil(t, found, metric)
		v, err := strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		values = append(values, v)
	}
	return values
}

// newcomers are devices that connect one after another, and measure the time until a router could
// find them.
type newcomers struct {
	mu      sync.Mutex
	longest time.Duration
	n       int
	err     error
}

// arriving connects newcomers until stop is called.
func arriving(t *testing.T, rdb *redis.Client, addrs ...string) (c *newcomers, stop func()) {
	c = &newcomers{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			took, err := arrive(ctx, rdb, addrs[i%len(addrs)], fmt.Sprintf("%015d", 350000000000000+i))
			c.mu.Lock()
			if ctx.Err() == nil {
				c.n++
				c.longest = max(c.longest, took)
				c.err = err
			}
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return c, stop
}

// arrive connects a device and waits until it is in the registry.
func arrive(ctx context.Context, rdb *redis.Client, addr, imei string) (took time.Duration, err error) {
	began := time.Now()
	d := device.New(imei, device.Options{Timeout: patience})
	defer d.Close()
	if accepted, err := d.Connect(ctx, addr); err != nil || !accepted {
		return 0, fmt.Errorf("%s is not accepted: %w", imei, err)
	}
	registered, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s is not registered", imei))
	defer cancel()
	for wait.For(registered, time.Millisecond) {
		held, err := rdb.HExists(ctx, registry.Layout{}.Registry(), imei).Result()
		if err != nil {
			return 0, err
		}
		if held {
			return time.Since(began), nil
		}
	}
	return 0, context.Cause(registered)
}

func (c *newcomers) come() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// soFar returns the number of devices so far, and the longest time since the last call.
func (c *newcomers) soFar(t *testing.T) (n int, longest time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(t, c.err)
	longest, c.longest = c.longest, 0
	return c.n, longest
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
	f := simulating(t, simulate.Config{
		Devices: 40, Targets: addrs, Interval: 200 * time.Millisecond, Records: 2, HalfOpen: 0.05,
		LadderUnit: 20 * time.Millisecond, Seed: 3,
	})
	f.await(t, func(c simulate.Counts) bool { return c.Connected >= 35 && c.Acked > 100 })
	c, stop := arriving(t, rdb, addrs...)
	more := func() {
		t.Helper()
		acked, n := f.Counts().Acked, c.come()
		f.await(t, func(now simulate.Counts) bool { return now.Acked > acked+100 && c.come() > n+5 })
	}
	more()
	subscribers := func() int {
		return len(strings.Split(strings.TrimSpace(
			rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Val().(string)), "\n"))
	}
	subscribed := subscribers()
	require.Positive(t, subscribed)

	steps := fenced(t, "tasks.md", "Rotate a password")
	for turn, old := 1, "first"; turn <= 3; turn++ {
		// a kind that openssl never makes
		o.env = []string{"OLD=" + old, "NEW=" + fmt.Sprint("new ", turn, " $é'\"")}
		if turn == 2 {
			o.env[1] = "NEW=" + strings.TrimSpace(o.shell("openssl rand -hex 32"))
		}
		failed := ofMetrics(t, `teltonika_registry_failures_total{op="register"}`, replicas...)
		c.soFar(t)
		o.redisLines(steps[0])
		replaced := float64(time.Now().UnixMilli()) / 1000
		o.shell(strings.SplitN(steps[1], "\n", 2)[0])
		require.Contains(t, steps[2], "settings_file_taken_timestamp_seconds")
		require.Eventually(t, func() bool {
			for _, at := range ofMetrics(t,
				`settings_file_taken_timestamp_seconds{setting="REDIS_PASSWORD_FILE"}`, replicas...) {
				if at <= replaced {
					return false
				}
			}
			return true
		}, patience, 50*time.Millisecond)
		require.Equal(t, []float64{0, 0},
			ofMetrics(t, `settings_file_failing{setting="REDIS_PASSWORD_FILE"}`, replicas...))
		o.redisLines(steps[3])
		more()
		n, longest := c.soFar(t)
		if longest < time.Second { // slower ones count as failed, on a slow machine too
			require.Equal(t, failed,
				ofMetrics(t, `teltonika_registry_failures_total{op="register"}`, replicas...))
		}
		t.Logf("turn %d: %d newcomers until now, the longest registration took %v", turn, n, longest)

		// Every connection is new: both clients', and those of blocking readers and subscribers.
		require.Positive(t, o.redisCLI("redis-cli CLIENT KILL USER rollcall"))
		more()
		n, longest = c.soFar(t)
		t.Logf("turn %d: %d newcomers until now, after CLIENT KILL the longest registration took %v", turn, n,
			longest)
		require.Eventually(t, func() bool { return subscribers() >= subscribed }, patience,
			20*time.Millisecond)
		require.Empty(t, o.redisCLI("redis-cli ACL LOG"), "somebody tries a former password")
		_, old, _ = strings.Cut(o.env[1], "=")
	}
	stop()
	// The readers of commands are back.
	d := device.New(imei, device.Options{Timeout: patience})
	_, err := d.Connect(t.Context(), addrs[0])
	require.NoError(t, err)
	_, err = d.Send(t.Context(), teltonika.Codec8, device.NewTrack(1).Next(1)...)
	require.NoError(t, err)
	obeyed := make(chan struct{})
	go func() {
		defer close(obeyed)
		_ = d.Obey(t.Context(), func(c device.Command) []teltonika.Message { // until the socket ends
			return []teltonika.Message{d.Executes(c, "did "+c.Text)}
		})
	}()
	code, stdout, stderr := command(t, args[0], args[1], imei, "getver")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "did getver\n", stdout)
	d.Close()
	<-obeyed

	f.stop()
	require.Greater(t, f.books.requireStored(t, rdb), 500)
	for _, r := range replicas {
		require.True(t, r.Runs())
		require.NotContains(t, r.Log(), "WRONGPASS")
		require.NotContains(t, r.Log(), "NOAUTH")
	}
	server.Restart() // it has what ACL SAVE wrote
	require.Len(t,
		server.Client().Do(t.Context(), "ACL", "GETUSER", "rollcall").Val().(map[any]any)["passwords"], 1)
}
