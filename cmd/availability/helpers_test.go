package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/api"
	"github.com/rollcall-redis/rollcall/internal/apitest"
	"github.com/rollcall-redis/rollcall/internal/pgtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/token"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

const (
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience   = time.Minute
	adminToken = "secret-0123456789"
	secret     = "0123456789abcdef0123456789abcdef"
	// asMain makes the test binary the program itself, for what only a process can show.
	asMain = "ROLLCALL_TEST_AS_MAIN"
)

var update = flag.Bool("update", false, "write the table into the manual, and the files of testdata")

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	logging.Disable() // what go-redis would print while a server is away
	pgtest.Main(m)
}

// quick are settings under which things happen within a test's time.
var quick = []string{
	"--heartbeat-interval=300ms", "--heartbeat-ttl=1200ms", "--availability-lease-ttl=1500ms",
	"--mitra-auto-offline-sweep-seconds=0.2", "--heartbeat-mirror-interval-seconds=0.2",
}

// on are the arguments for these servers.
func on(server *redistest.Server, databaseURL string, more ...string) []string {
	args := []string{
		"--redis-url=redis://" + server.Addr(), "--database-url=" + databaseURL, "--jwt-hs256-secret=" + secret,
	}
	return append(append(args, quick...), more...)
}

// run is a call of the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return program().Execute(ctx, args, nil, stdout, stderr)
}

// says runs a command that ends, and returns what it says.
func says(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// running is a run of the program within this process.
type running struct {
	t      testing.TB
	stop   context.CancelFunc
	log    *process.Buffer
	status chan int
	http   string
	doc    *apitest.Document
}

// serving runs the program on a free port with these further arguments, and waits until HTTP is
// open.
func serving(t testing.TB, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &running{
		t: t, stop: cancel, log: &process.Buffer{}, status: make(chan int, 1), doc: apitest.Read(t, api.Description()),
	}
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
	}, "HTTP is open")
	return p
}

// ends waits for the program's end and returns its exit status.
func (p *running) ends() int {
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

func (p *running) await(what func() bool, name string) {
	p.t.Helper()
	waittest.Until(p.t, 20*time.Millisecond, what, name)
}

// client keeps no connection open, since those would look like leaks.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ask makes a request with a token, and returns the answer.
func (p *running) ask(as, method, path, body string) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.http+path, strings.NewReader(body))
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+as)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	if as != adminToken { // a token of the API, which has a document
		p.doc.Check(p.t, req, resp, raw)
	}
	return resp, string(raw)
}

// is asks, and requires a status. It returns who answered, and the body.
func (p *running) is(code int, as, method, path, body string) (source, text string) {
	p.t.Helper()
	resp, text := p.ask(as, method, path, body)
	require.Equal(p.t, code, resp.StatusCode, "%s %s: %s", method, path, text)
	return resp.Header.Get("Availability-Source"), text
}

func (p *running) get(path string) (code int, body string) {
	p.t.Helper()
	resp, body := p.ask(adminToken, http.MethodGet, path, "")
	return resp.StatusCode, body
}

func (p *running) state() replicaStatus {
	p.t.Helper()
	code, body := p.get("/api/v1/status")
	require.Equal(p.t, http.StatusOK, code)
	var st replicaStatus
	require.NoError(p.t, json.Unmarshal([]byte(body), &st))
	return st
}

var _ service.Stated = replicaStatus{}

func bearer(who token.UserType, subject string) string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": subject, "userType": who, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(secret))
	if err != nil {
		panic(err)
	}
	return text
}

var (
	asService  = bearer(token.Service, "dispatch")
	asAdmin    = bearer(token.Admin, "root")
	asCustomer = bearer(token.Customer, "ann")
)

// newMitra is one that raw SQL makes, and its token.
func newMitra(t testing.TB, db *pgtest.DB) (id, as string) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "INSERT INTO mitras DEFAULT VALUES RETURNING id::text").Scan(&id))
	return id, bearer(token.Mitra, id)
}

func newSession(t testing.TB, db *pgtest.DB) (id string) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "INSERT INTO chat_sessions DEFAULT VALUES RETURNING id::text").Scan(&id))
	return id
}
