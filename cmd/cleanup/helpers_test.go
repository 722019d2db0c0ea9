package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

const (
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience   = waittest.Patience
	adminToken = "secret-0123456789"
	// asMain makes the test binary the program itself, for what only a process can show.
	asMain = "ROLLCALL_TEST_AS_MAIN"
)

var update = flag.Bool("update", false, "write the tables into the manual, and the files of testdata")

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	mongotest.Main(m)
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
  grace: 2s
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
  grace: 2s
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

// says runs a command until it ends, and returns its output.
func says(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// tells runs the commands of a script; $ON is the server, with the rules of the tests.
func tells(t testing.TB, script string, server *redistest.Server) {
	t.Helper()
	flags := ""
	if server != nil {
		flags = strings.Join(on(t, server), " ")
	}
	calltest.Tells(t, func(args ...string) (int, string) {
		code, out, said := says(t, args...)
		return code, out + said
	}, script, "$ON", flags)
}

// running is a run of the program within this process.
type running struct{ *programtest.Program }

// serving runs the program on a free port with these further arguments, and waits until HTTP is
// open.
func serving(t testing.TB, args ...string) *running {
	t.Helper()
	p := &running{programtest.Start(t, run, append([]string{"--admin-token=" + adminToken}, args...)...)}
	p.Serves()
	return p
}

func (p *running) state() workerStatus {
	p.T.Helper()
	return programtest.Status[workerStatus](p.Program)
}

var _ console.Stated = workerStatus{}
