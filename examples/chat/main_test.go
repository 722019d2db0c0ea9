package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// asReplica makes the test's own program the service, so that a replica can be killed.
const asReplica = "CHAT_REPLICA_OF_A_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// replica is a process of the service.
type replica struct {
	*process.Process
	name, addr string
}

func start(t *testing.T, server *redistest.Server, name string) *replica {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-redis", server.Addr(), "-heartbeat", "1s")
	cmd.Env = append(os.Environ(), asReplica+"=1", "POD_NAME="+name)
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), name+".log")})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.Log())
		}
	})
	r := &replica{Process: p, name: name}
	until(t, func() bool {
		r.addr = p.Said("listening", "addr")
		return r.addr != ""
	})
	return r
}

func until(t *testing.T, cond func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Millisecond, cond)
}

// get returns "" if the replica does not answer.
func (r *replica) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+path, http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// where returns the replica of each of a user's devices, as this replica sees it.
func (r *replica) where(t *testing.T, user string) (devices map[string]string) {
	t.Helper()
	var pods map[string]string
	if code, body := r.get(t, "/where?user="+user); code == http.StatusOK {
		require.NoError(t, json.Unmarshal([]byte(body), &pods))
	}
	devices = make(map[string]string, len(pods))
	for id, pod := range pods {
		devices[strings.TrimPrefix(id, user+"|")] = pod
	}
	return devices
}

// client is a device of a user.
type client struct {
	conn  *websocket.Conn
	texts chan string // closed when the socket ends
}

func (r *replica) connect(t *testing.T, user, device string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, "ws://"+r.addr+"/connect?user="+user+"&device="+device, nil)
	require.NoError(t, err)
	if res.Body != nil {
		_ = res.Body.Close()
	}
	c := &client{conn, make(chan string, 100)}
	go func() {
		defer close(c.texts)
		for {
			_, text, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			c.texts <- string(text)
		}
	}()
	t.Cleanup(func() {
		_ = conn.CloseNow()
		for range c.texts { // until it is closed
		}
	})
	return c
}

func (c *client) say(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(text)))
}

// hear waits until each of alice's clients has heard bob. Pub/sub may lose a text while things
// break, so each round has a text of its own, and nothing of it is under way at the end.
func hear(t *testing.T, bob *client, clients ...*client) {
	t.Helper()
	round := 0
	until(t, func() bool {
		round++
		bob.say(t, fmt.Sprintf("alice %d", round))
		in := time.After(time.Second)
		for _, c := range clients {
			for heard := false; !heard; {
				select {
				case text, open := <-c.texts:
					require.True(t, open, "the socket has ended")
					heard = text == fmt.Sprintf("bob: %d", round)
				case <-in:
					return false
				}
			}
		}
		return true
	})
}

func TestAUserWithThreeSocketsOnThreeReplicasIsFoundWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	one, two, three := start(t, server, "chat-0"), start(t, server, "chat-1"), start(t, server, "chat-2")
	fleet := []*replica{one, two, three}
	everywhere := func(want map[string]string, among ...*replica) {
		t.Helper()
		for _, r := range among {
			until(t, func() bool { return maps.Equal(r.where(t, "alice"), want) })
		}
	}
	bob := one.connect(t, "bob", "phone")
	phone, tablet := one.connect(t, "alice", "phone"), two.connect(t, "alice", "tablet")
	laptop := three.connect(t, "alice", "laptop")
	whole := map[string]string{"phone": "chat-0", "tablet": "chat-1", "laptop": "chat-2"}
	everywhere(whole, fleet...)
	hear(t, bob, phone, tablet, laptop)

	// Redis loses everything.
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	everywhere(whole, fleet...)
	hear(t, bob, phone, tablet, laptop)

	// A replica is paused until it counts as dead. Its sockets stay open: once it has answered, it is
	// writing to none, which would take too long.
	everywhere(whole, fleet...)
	require.NoError(t, two.Stop())
	everywhere(map[string]string{"phone": "chat-0", "laptop": "chat-2"}, one, three)
	until(t, func() bool { // also in the index by user
		return !slices.Contains(rdb.ZRange(t.Context(), online, 0, -1).Val(), "alice|tablet")
	})
	require.NoError(t, two.Cont())
	everywhere(whole, fleet...)
	hear(t, bob, tablet)

	// A replica dies. Its device connects to another.
	three.Kill()
	everywhere(map[string]string{"phone": "chat-0", "tablet": "chat-1"}, one, two)
	laptop = two.connect(t, "alice", "laptop")
	whole["laptop"] = "chat-1"
	everywhere(whole, one, two)
	hear(t, bob, laptop)

	// The device connects again before its old socket has ended.
	newer := one.connect(t, "alice", "phone")
	for range phone.texts { // until the older socket is closed
	}
	hear(t, bob, newer)
	everywhere(whole, one, two)

	// Everybody leaves but bob.
	for _, c := range []*client{newer, tablet, laptop} {
		_ = c.conn.CloseNow()
	}
	everywhere(map[string]string{}, one, two)
	require.Equal(t, map[string]string{"phone": "chat-0"}, two.where(t, "bob"), "an answer, not a failure")
	until(t, func() bool {
		return slices.Equal(rdb.ZRange(t.Context(), online, 0, -1).Val(), []string{"bob|phone"})
	})

	code, text := one.get(t, "/rollcall")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "<td>chat-1<td>alive")
	_, text = one.get(t, "/metrics")
	require.Contains(t, text, "chat_registry_healed_total")
	require.Contains(t, text, "chat_janitor_leader")
	for _, r := range []*replica{one, two} {
		code, _ = r.get(t, "/readyz")
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, r.Signal(syscall.SIGTERM))
		require.Zero(t, r.ExitCode(), r.name)
	}
	require.Zero(t, rdb.Exists(t.Context(), guard.Layout{Prefix: "chat:"}.Registry()).Val())
}

var region = regexp.MustCompile(`(?ms)^(\t+)// rollcall: (\w+)\n(.*?)^\t+// rollcall: end\n`)

func regions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, file := range []string{"main.go", "chat.go"} {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range region.FindAllStringSubmatch(string(code), -1) {
			all[found[2]] = strings.TrimPrefix(strings.ReplaceAll("\n"+found[3], "\n"+found[1], "\n"), "\n")
		}
	}
	require.Len(t, all, 2)
	return all
}

func TestThePagesShowThisCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/embed.md")
	require.NoError(t, err)
	for name, code := range regions(t) {
		require.Contains(t, string(page), "```go\n"+code+"```\n", "docs/embed.md has another text of %s", name)
	}
}

func TestRollcallTakesFortyLinesAtMost(t *testing.T) {
	t.Parallel()
	fleet := regions(t)["fleet"]
	lines := strings.Count(fleet, "\n") - 3*strings.Count(fleet, "if err != nil {\n\treturn err\n}\n")
	uses := regexp.MustCompile(`^[^/]*\b(rollcall|replica|claim)\b|\bhandlers\.`)
	for _, file := range []string{"main.go", "chat.go"} {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		_, code, _ = bytes.Cut(code, []byte("\n)\n")) // behind the imports
		for line := range bytes.Lines(regexp.MustCompile(`(?s)// rollcall: fleet.*?// rollcall: end`).ReplaceAll(code, nil)) {
			if uses.Match(line) {
				lines++
			}
		}
	}
	t.Log(lines, "lines")
	require.LessOrEqual(t, lines, 40)
}

// late delays what is written about alice's phone.
type late struct{ net.Conn }

func (c late) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("alice|phone")) {
		time.Sleep(1200 * time.Millisecond)
	}
	return c.Conn.Write(b)
}

// alone runs one replica of the service in this process.
func alone(t *testing.T, server *redistest.Server, opt *redis.Options) (*chat, *replica) {
	t.Helper()
	c := &chat{
		log: slog.New(slog.DiscardHandler), rdb: server.Client(),
		sockets: map[string]*socket{}, lost: make(chan struct{}, 1),
	}
	var err error
	c.replica, err = rollcall.New(rollcall.Config{
		Redis: opt, Instance: "chat-0", Logger: c.log, Drain: time.Second, Janitor: rollcall.Janitor{Off: true},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.replica.Run(ctx) }()
	<-c.replica.Started()
	srv := httptest.NewServer(http.HandlerFunc(c.connect))
	t.Cleanup(func() {
		srv.Close()
		cancel()
		require.NoError(t, <-ended)
	})
	return c, &replica{addr: srv.Listener.Addr().String()}
}

// A device that was away is condemned by the rule until its entry is in Redis.
func TestAnIDIsListedAfterItsEntry(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opt := server.Options()
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return late{conn}, err
	}
	c, one := alone(t, server, opt)
	one.connect(t, "alice", "phone")
	// As the rule may: it removes what has no entry.
	const rule = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 1 end redis.call('ZREM', KEYS[2], ARGV[1]) return 0`
	until(t, func() bool {
		keys := []string{guard.Layout{}.Registry(), online}
		entered, err := c.rdb.Eval(t.Context(), rule, keys, "alice|phone").Bool()
		require.NoError(t, err)
		return entered
	})
	until(t, func() bool { return c.rdb.ZCard(t.Context(), online).Val() == 1 })
}

// Only a reader of the socket notices a pong, and a socket without pongs is closed.
func TestASocketIsReadWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, one := alone(t, server, server.Options())
	phone := one.connect(t, "alice", "phone")
	until(t, func() bool { return c.rdb.ZCard(t.Context(), online).Val() == 1 })
	server.Stop()
	defer server.Cont()
	for range 10 {
		phone.say(t, "bob hello")
	}
	pong, cancel := context.WithTimeout(t.Context(), pongIn)
	defer cancel()
	require.NoError(t, phone.conn.Ping(pong))
}

func TestAnIDThatCannotBeKeptIsRefused(t *testing.T) {
	t.Parallel()
	c := &chat{}
	for _, query := range []string{
		"device=phone", "user=alice", "user=a%7Cb&device=phone", "user=%FF&device=phone",
		"user=alice&device=" + strings.Repeat("x", idBytes),
	} {
		w := httptest.NewRecorder()
		c.connect(w, httptest.NewRequest(http.MethodGet, "/connect?"+query, http.NoBody))
		require.Equal(t, http.StatusBadRequest, w.Code, query)
	}
}
