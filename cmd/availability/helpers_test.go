package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

const (
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience   = waittest.Patience
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
	return command().Execute(ctx, args, nil, stdout, stderr)
}

// says runs a command until it ends, and returns its output.
func says(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// stores are a Redis and a database of a test that runs beside others.
type stores struct {
	t      *testing.T
	server *redistest.Server
	db     *pgtest.DB
}

func own(t *testing.T) stores {
	t.Helper()
	t.Parallel()
	return stores{t, redistest.Start(t), pgtest.Database(t)}
}

// args are the arguments of the program for these stores.
func (s stores) args(more ...string) []string { return on(s.server, s.db.URL, more...) }

func (s stores) exec(sql string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), sql)
	require.NoError(s.t, err)
}

// running is a run of the program within this process.
type running struct {
	*programtest.Program
	stores
	names []string // of what a script names, each before its id
}

// serving runs the program on a free port, and waits until HTTP is open.
func (s stores) serving(more ...string) *running {
	s.t.Helper()
	return s.running(s.args(more...)...)
}

func (s stores) running(args ...string) *running {
	s.t.Helper()
	p := &running{programtest.Start(s.t, run, append([]string{"--admin-token=" + adminToken}, args...)...), s, nil}
	p.Serves()
	return p
}

// stops stops it, and requires that it ends well.
func (p *running) stops() {
	p.t.Helper()
	p.Stop()
	require.Equal(p.t, cli.ExitOK, p.Ends())
}

// is asks, and requires a status. It returns who answered, and the body.
func (p *running) is(code int, as, method, path, body string) (source, text string) {
	p.t.Helper()
	resp, text := p.Ask(as, method, path, body)
	require.Equal(p.t, code, resp.StatusCode, "%s %s: %s", method, path, text)
	return resp.Header.Get("Availability-Source"), text
}

// plays makes requests, one a line: the status that is expected, who asks (a mitra by its id), the
// method, the path below /api/v1, a body, and behind an arrow words that are in the answer, or who
// has answered. {a} is the id of what was named a.
func (p *running) plays(script string) (source, text string) {
	p.t.Helper()
	script = strings.NewReplacer(p.names...).Replace(script)
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		words := append(strings.SplitN(request, " ", 5), "")
		as, known := map[string]string{"admin": asAdmin, "service": asService, "customer": asCustomer}[words[1]]
		if !known {
			as = bearer(token.Mitra, words[1])
		}
		code, err := strconv.Atoi(words[0])
		require.NoError(p.t, err, line)
		source, text = p.is(code, as, words[2], "/api/v1"+words[3], words[4])
		for word := range strings.FieldsSeq(want) {
			require.Contains(p.t, source+" "+text, word, line)
		}
	}
	return source, text
}

// mitra is one that raw SQL makes, and that a script calls by this name.
func (p *running) mitra(name string) string {
	p.t.Helper()
	return p.named(name, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
}

func (p *running) session(name string) string {
	p.t.Helper()
	return p.named(name, "INSERT INTO chat_sessions DEFAULT VALUES RETURNING id::text")
}

func (p *running) named(name, sql string) (id string) {
	p.t.Helper()
	require.NoError(p.t, p.db.QueryRow(p.t.Context(), sql).Scan(&id))
	p.names = append(p.names, "{"+name+"}", id)
	return id
}

func (p *running) state() replicaStatus {
	p.t.Helper()
	return programtest.Status[replicaStatus](p.Program)
}

var _ console.Stated = replicaStatus{}

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
