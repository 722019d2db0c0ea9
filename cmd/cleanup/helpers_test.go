package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

const (
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience   = 2 * time.Minute
	adminToken = "secret-0123456789"
	// asMain makes the test binary the program itself, for what only a process can show.
	asMain = "ROLLCALL_TEST_AS_MAIN"
)

var update = flag.Bool("update", false, "write the tables into the manual, and the files of testdata")

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	redistest.Main(m)
}

// quick are settings under which things happen within a test's time.
var quick = []string{
	"--heartbeat-interval=300ms", "--heartbeat-ttl=1200ms", "--cleanup-interval=300ms", "--cleanup-lease-ttl=1500ms",
}

// botsOfTests is one of ofTests, which nothing of the tests makes complain.
const botsOfTests = `- name: bots
  category: orphanedBotStates
  delete: true
  keys: "bots:state:{bot}"
  keep_if:
  - member: {set: "bots:deployed", of: "{bot}"}
  unless_lost:
  - exists: "bots:deployed"
  grace: 1s
  bin: 24h
`

// ofTests are rules that ask no database, with a short grace.
const ofTests = `rules:
- name: reservations
  category: expiredReservations
  delete: true
  keys: "queue:reservation:{user}"
  read: json
  bind: {room: .roomId}
  keep_if:
  - field: {hash: roomcaches, field: "{room}"}
  unless_lost:
  - exists: roomcaches
  grace: 1s
` + botsOfTests + `- name: carts
  keys: "cart:{user}"
  keep_if:
  - exists: "session:{user}"
  unless_lost:
  - exists: sessions
`

// rulesFile is a file with rules.
func rulesFile(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// leaks writes what a backend has: a room with a reservation, a reservation of a room that is gone,
// a bot, a bot that is gone, a cart.
func leaks(t testing.TB, server *redistest.Server) {
	t.Helper()
	ctx, rdb := t.Context(), server.Client()
	require.NoError(t, rdb.HSet(ctx, "roomcaches", "r1", "{}").Err())
	for user, room := range map[string]string{"ann": `{"roomId":"r1"}`, "bob": `{"roomId":"gone"}`, "eve": `no JSON`} {
		require.NoError(t, rdb.Set(ctx, "queue:reservation:"+user, room, 0).Err())
	}
	require.NoError(t, rdb.SAdd(ctx, "bots:deployed", "b1").Err())
	require.NoError(t, rdb.HSet(ctx, "bots:state:b1", "state", "idle").Err())
	require.NoError(t, rdb.HSet(ctx, "bots:state:b2", "state", "idle").Err())
	require.NoError(t, rdb.HSet(ctx, "cart:ann", "apples", 3).Err())
}

// run is a call of the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cleanup().Execute(ctx, args, nil, stdout, stderr)
}

// says runs a command that ends, and returns what it says.
func says(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// program is a run of the program within this process.
type program struct {
	t      testing.TB
	stop   context.CancelFunc
	log    *process.Buffer
	status chan int
	http   string
}

// serving runs the program on a free port with these further arguments, and waits until HTTP is
// open.
func serving(t testing.TB, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{t: t, stop: cancel, log: &process.Buffer{}, status: make(chan int, 1)}
	args = append([]string{"--http-addr=127.0.0.1:0", "--log-format=json", "--admin-token=" + adminToken}, args...)
	go func() { p.status <- run(ctx, args, io.Discard, p.log) }()
	t.Cleanup(func() {
		cancel()
		p.status <- <-p.status // wait, whether or not the test has
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	p.await(func() bool {
		p.http = process.Said(p.log.String(), "serving HTTP", "addr")
		return p.http != ""
	})
	return p
}

// ends waits for the program's end and returns its exit status.
func (p *program) ends() int {
	p.t.Helper()
	select {
	case code := <-p.status:
		p.status <- code
		return code
	case <-time.After(patience):
		p.t.Fatalf("the program has not ended:\n%s", p.log)
		return 0
	}
}

func (p *program) await(what func() bool) {
	p.t.Helper()
	waittest.Until(p.t, 20*time.Millisecond, what)
}

// client keeps no connection open, since those would look like leaks.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *program) ask(method, path string) (code int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.http+path, nil)
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(raw)
}

func (p *program) get(path string) (code int, body string) {
	p.t.Helper()
	return p.ask(http.MethodGet, path)
}

func (p *program) state() workerStatus {
	p.t.Helper()
	code, body := p.get("/api/v1/status")
	require.Equal(p.t, http.StatusOK, code)
	var st workerStatus
	require.NoError(p.t, json.Unmarshal([]byte(body), &st))
	return st
}

var _ service.Stated = workerStatus{}
