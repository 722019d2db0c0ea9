package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
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

// running is a run of the program within this process.
type running struct {
	*programtest.Program
}

// serving runs the program on a free port with these further arguments, and waits until HTTP is
// open.
func serving(t testing.TB, args ...string) *running {
	t.Helper()
	p := &running{
		programtest.Start(t, run, append([]string{"--admin-token=" + adminToken}, args...)...),
	}
	p.Serves()
	return p
}

// is asks, and requires a status. It returns who answered, and the body.
func (p *running) is(code int, as, method, path, body string) (source, text string) {
	p.T.Helper()
	resp, text := p.Ask(as, method, path, body)
	require.Equal(p.T, code, resp.StatusCode, "%s %s: %s", method, path, text)
	return resp.Header.Get("Availability-Source"), text
}

func (p *running) state() replicaStatus {
	p.T.Helper()
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
