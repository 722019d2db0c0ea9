package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// redials is longer than go-redis takes to find out that its pool was closed.
const redials = 2 * time.Second

// Server is a redis-server process that this package started. Its methods fail
// the test that it was made for, so those that act are for that test's goroutine.
type Server struct {
	t      testing.TB
	p      *server
	shared bool
}

// Start starts a redis-server of the test's own on a free loopback port and
// returns when it answers. It persists nothing unless args say so, as in
//
//	redistest.Start(t, "--appendonly", "yes")
//
// args are redis-server's command line and win over the defaults. The server and
// its folder go with the test; a test that fails shows the end of its log.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartNamed(t, "", args...)
}

// StartNamed is [Start] for a server of another version or make: binary is its path, and
// what the environment says of servers does not matter.
func StartNamed(t testing.TB, binary string, args ...string) *Server {
	t.Helper()
	return start(t, binary, false, args)
}

// StartNewest is [Start] for what Redis 7 does not have: it is the Redis 8 that REDIS8_SERVER
// names, or that scripts/redis 8 has left in the cache, else the server that all other tests run
// on.
func StartNewest(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, findNewest(), false, args)
}

// Makes returns [Start] for a Redis and, where one is found, for a Valkey: the one that
// VALKEY_SERVER names, the PATH's, or what "scripts/redis valkey" has left in the cache.
func Makes() map[string]func(t testing.TB, args ...string) *Server {
	makes := map[string]func(testing.TB, ...string) *Server{"Redis": Start}
	if binary := findValkey(); binary != "" {
		makes["Valkey"] = func(t testing.TB, args ...string) *Server { return StartNamed(t, binary, args...) }
	}
	return makes
}

func start(t testing.TB, binary string, node bool, args []string) *Server {
	t.Helper()
	return launched(t, &server{binary: binary, dir: t.TempDir(), args: args}, node)
}

// launched starts a server like one, for as long as the test runs.
func launched(t testing.TB, like *server, node bool) *Server {
	t.Helper()
	p, err := like.launch(node)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server %s, pid %d, end of its log:\n%s", p.addr(), p.present().PID(), p.log())
		}
		require.NoError(t, p.close())
	})
	return &Server{t: t, p: p}
}

// Addr returns host and port. They stay over restarts.
func (s *Server) Addr() string { return s.p.addr() }

// Options returns fresh options as the packages here ask for them: no retries,
// contexts honoured.
func (s *Server) Options() *redis.Options { return options(s.Addr()) }

func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true}
}

// Client returns a new client with go-redis' defaults, retries among them, for a
// test's own look at the server. It is closed with the test. A test that closes it
// earlier does no harm.
func (s *Server) Client() *redis.Client { return newClient(s.t, &redis.Options{Addr: s.Addr()}) }

// Dir returns the server's working folder: its append-only file is below it.
func (s *Server) Dir() string { return s.p.dir }

// PID returns the process id of the present life, or of the last one.
func (s *Server) PID() int { return s.p.present().PID() }

// Stop freezes the server (SIGSTOP): connections stay open, nothing is answered,
// and new ones are accepted by the kernel only. It returns when that holds.
func (s *Server) Stop() {
	s.t.Helper()
	s.ownOnly()
	require.NoError(s.t, s.p.present().Stop())
}

// Cont lets a stopped server go on (SIGCONT).
func (s *Server) Cont() {
	s.t.Helper()
	s.ownOnly()
	require.NoError(s.t, s.p.present().Cont())
}

// Kill ends the server without a chance to save (SIGKILL) and returns when it is
// gone. What an append-only server answered before is on its disk.
func (s *Server) Kill() {
	s.t.Helper()
	s.ownOnly()
	s.p.kill()
}

// Restart kills the server if it lives, and starts it anew on the same port and
// folder: it loads what its last life persisted. It returns when it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, s.p.start())
}

// ownOnly keeps a test from stopping the server under its neighbours.
func (s *Server) ownOnly() {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("redistest: the shared server is not this test's to stop: use Start")
	}
}

func newClient(t testing.TB, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() }) // the only error is that the test closed it already
	return c
}

// common is the test binary's one shared server, started when it is first asked for.
var common struct {
	sync.Mutex
	inMain bool // Main is there to stop it
	p      *server
	err    error // of the only attempt: it is not going to get better
}

// Shared returns the test binary's one real server, started at the first call
// and stopped by [Main]. Other tests use it at the same time: keep to the keys
// under a [Prefix], change no setting, flush nothing.
func Shared(t testing.TB) *Server {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if !common.inMain {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main")
	}
	if common.p == nil && common.err == nil {
		common.p, common.err = launchShared()
	}
	require.NoError(t, common.err)
	return &Server{t: t, p: common.p, shared: true}
}

func launchShared() (*server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	p, err := launch("", dir, false, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

func stopShared() error {
	common.Lock()
	defer common.Unlock()
	if common.p == nil {
		return nil
	}
	return errors.Join(common.p.close(), os.RemoveAll(common.p.dir))
}

// Main is the body of a package's TestMain: it runs the tests, stops the shared
// server and fails the package when a goroutine is left. It does not return.
// m is a *testing.M, or what runs one and cleans up more.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m interface{ Run() (code int) }) {
	common.Lock()
	common.inMain = true
	common.Unlock()

	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// A failed test often leaves something behind; its own words matter more.
	if code == 0 {
		// The runtime's own goroutine looks like one of ours while it runs cleanups.
		find := func() error { return goleak.Find(goleak.IgnoreAnyFunction("runtime.runCleanups")) }
		err := find()
		// go-redis' pool dials a server that is gone once a second, also when it was closed meanwhile.
		for late := time.Now().Add(redials); err != nil && time.Now().Before(late); err = find() {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}
