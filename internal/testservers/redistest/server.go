package redistest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/internal/testservers/fakeredis"
)

// redials is longer than go-redis takes to notice that its pool was closed.
const redials = 2 * time.Second

// Server is a redis-server. Its methods fail the test that it was created for, so those that act
// must be called from that test's goroutine.
type Server struct {
	t      testing.TB
	p      *server
	shared bool
}

// Start starts a redis-server for this test on a free loopback port and returns once it answers. It
// persists nothing unless args, redis-server's command line, say so:
//
//	redistest.Start(t, "--appendonly", "yes")
//
// The server and its folder are removed with the test; a failed test shows the end of its log.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartNamed(t, "", args...)
}

// StartNamed is [Start] for another version or make: a path; the environment's servers are ignored.
func StartNamed(t testing.TB, binary string, args ...string) *Server {
	t.Helper()
	return start(t, binary, false, args)
}

// StartNewest is [Start] for features that Redis 7 lacks: on the Redis 8 named by REDIS8_SERVER or
// left in the cache by scripts/redis 8, or else the usual server.
func StartNewest(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, findNewest(), false, args)
}

// Makes has [Start] for a Redis and, if one is found, for a Valkey: VALKEY_SERVER, on the PATH, or
// in the cache by "scripts/redis valkey".
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

// Addr survives restarts.
func (s *Server) Addr() string { return s.p.addr() }

// Options are fresh: no retries, contexts honoured.
func (s *Server) Options() *redis.Options { return options(s.Addr()) }

func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true}
}

// Client has go-redis' defaults, including retries, for a test's own access. It is closed with the
// test, which may also close it earlier.
func (s *Server) Client() *redis.Client { return newClient(s.t, &redis.Options{Addr: s.Addr()}) }

// Dir has the append-only file.
func (s *Server) Dir() string { return s.p.dir }

// PID returns the present process' id, or the last one's.
func (s *Server) PID() int { return s.p.present().PID() }

// Stop freezes the server (SIGSTOP): connections stay open, and only the kernel accepts new ones.
func (s *Server) Stop() {
	s.t.Helper()
	s.ownOnly()
	require.NoError(s.t, s.p.present().Stop())
}

// Cont ends Stop.
func (s *Server) Cont() {
	s.t.Helper()
	s.ownOnly()
	require.NoError(s.t, s.p.present().Cont())
}

// Kill ends the server (SIGKILL). An append-only server has written whatever it had acknowledged.
func (s *Server) Kill() {
	s.t.Helper()
	s.ownOnly()
	s.p.kill()
}

// Restart starts the server again on the same port and folder. It returns once the server answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, s.p.start())
}

func (s *Server) ownOnly() {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("redistest: the shared server is not this test's to stop: use Start")
	}
}

func newClient(t testing.TB, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

var common struct {
	sync.Mutex
	inMain bool // Main will stop it
	p      *server
	err    error // of the only attempt: another one would not fare better
}

// Shared returns the test binary's one real server. Other tests use it too: use only keys under a
// [Prefix], change no settings, flush nothing.
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

// Main is the body of a package's TestMain: it runs the tests, stops the shared server and fails
// the package if a goroutine is left. It does not return.
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
	// A failed test often leaves something, and its own message matters more.
	if code == 0 {
		// The runtime's own goroutine looks like one of ours while it runs cleanups.
		find := func() error { return goleak.Find(goleak.IgnoreAnyFunction("runtime.runCleanups")) }
		err := find()
		// go-redis' pool dials a lost server once a second, even if it was closed meanwhile.
		for late := time.Now().Add(redials); err != nil && time.Now().Before(late); err = find() {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Fake starts a server in this process, for testing/synctest, and returns its options.
func Fake(t testing.TB) *redis.Options {
	_, o := fakeredis.Start(t)
	return o
}

// User has an ACL user's rules from a page: the arguments of `redis-cli ACL SETUSER name` there,
// with the password PASSWORD.
func User(t testing.TB, page, name string) (rules []any) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	line := regexp.MustCompile(`(?s)redis-cli ACL SETUSER ` + regexp.QuoteMeta(name) + ` (.*?)\n` + "```").
		FindStringSubmatch(string(text))
	require.NotNil(t, line, "no user %s in %s", name, page)
	for rule := range strings.FieldsSeq(strings.ReplaceAll(line[1], "\\\n", " ")) {
		rules = append(rules, strings.Trim(rule, "'"))
	}
	return rules
}

// Asked reports whether tests were selected with -run, and all of them: what takes many minutes
// runs only then.
func Asked() bool { return !testing.Short() && flag.Lookup("test.run").Value.String() != "" }

// OnlyIfAsked skips a test that takes many minutes, unless it was asked for.
func OnlyIfAsked(t testing.TB) {
	if t.Helper(); !Asked() {
		t.Skip("takes many minutes: run it by its name, with -run")
	}
}

// Raced returns -race for go build if this test was built with it: then most packages are compiled
// already.
func Raced() (flags []string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			flags = append(flags, "-race="+s.Value)
		}
	}
	return flags
}

// CLI returns the redis-cli (or valkey-cli) of the usual server. A server from scripts/redis is
// started by a script, with its own libraries; so is its redis-cli.
func CLI(t testing.TB) string {
	t.Helper()
	server, err := findBinary()
	require.NoError(t, err)
	dir, name := filepath.Split(server)
	cli := strings.Replace(name, "-server", "-cli", 1)
	if _, err := os.Stat(filepath.Join(dir, cli)); err == nil {
		return filepath.Join(dir, cli)
	}
	text, err := os.ReadFile(server)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "#!"), "beside %s there is no %s", server, cli)
	script := regexp.MustCompile(`(?m)^here=.*$`).ReplaceAllLiteralString(string(text), "here='"+dir+"'")
	script = strings.Replace(script, "/usr/bin/"+name, "/usr/bin/"+cli, 1)
	path := filepath.Join(t.TempDir(), cli)
	// A process forked meanwhile would have the file open for writing, and until it runs its own
	// program, starting this one would fail (golang.org/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// Version returns its make and version, as "Redis 7.0.15".
func Version() (string, error) {
	server, err := findBinary()
	if err != nil {
		return "", err
	}
	said, err := exec.Command(server, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redistest: %s --version: %w", server, err)
	}
	found := versioned.FindSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("redistest: %s --version says %q", server, said)
	}
	return string(found[1]) + " " + string(found[2]), nil
}

var versioned = regexp.MustCompile(`^(Redis|Valkey) server v=(\S+)`)
