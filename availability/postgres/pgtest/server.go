package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
)

const (
	superuser = "rollcall"
	nobody    = 65534
	pollEvery = 5 * time.Millisecond
	logTail   = 8 << 10 // bytes of the log shown by a failed test
	cached    = ".cache/postgres/bin"
)

// A Server is a PostgreSQL server started for one test. Its methods fail that test.
type Server struct {
	t testing.TB
	p *server
}

// Start starts a server for this test and returns once it answers. The server is removed with the
// test; a failed test shows the end of its log. Settings override the defaults here, for example
//
//	pgtest.Start(t, "synchronous_commit=off") // a kill loses the latest commits
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, "", settings)
}

// StartOn starts a server for this test on a copy from [Server.Copy] or [Server.RestartOn], which
// belongs to the new server from then on.
func StartOn(t testing.TB, copied string, settings ...string) *Server {
	t.Helper()
	return start(t, copied, settings)
}

func start(t testing.TB, copied string, settings []string) *Server {
	t.Helper()
	p, err := launch(copied, settings)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("postgres, pid %d, end of its log:\n%s", p.life.PID(), p.log())
		}
		require.NoError(t, p.close())
	})
	return &Server{t: t, p: p}
}

// Database creates an empty database on the server.
func (s *Server) Database() *DB {
	s.t.Helper()
	return s.p.database(s.t, "template0")
}

// URL returns the URL of a database on the server, for its superuser.
func (s *Server) URL(database string) string { return s.p.url(database) }

// PID returns the server's process id, or its last one.
func (s *Server) PID() int { return s.p.life.PID() }

// Dir returns the folder of the server's socket.
func (s *Server) Dir() string { return s.p.dir }

// Stop freezes the server with all its connections (SIGSTOP). It answers nothing any more; only
// the kernel accepts new connections.
func (s *Server) Stop() {
	s.t.Helper()
	require.NoError(s.t, s.p.life.Stop()) // first, so that no further process appears
	for _, pid := range s.p.backends() {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // or it has just ended
	}
}

// Cont resumes a frozen server (SIGCONT).
func (s *Server) Cont() {
	s.t.Helper()
	for _, pid := range s.p.backends() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	require.NoError(s.t, s.p.life.Cont())
}

// Kill ends the server and all its connections at once (SIGKILL), even a frozen one.
func (s *Server) Kill() {
	s.t.Helper()
	s.p.kill()
}

// Restart kills the server if it is running, and starts it again with its data and its URL. It
// returns once the server answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.p.kill()
	require.NoError(s.t, s.p.start())
}

// Standby starts another server for this test that replicates this one, which needs Replicated
// among its settings. It is read-only until promoted.
func (s *Server) Standby(settings ...string) *Server {
	s.t.Helper()
	copied := s.Copy()
	conf, err := os.OpenFile(filepath.Join(copied, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = fmt.Fprintf(conf, "primary_conninfo = 'host=%s user=%s'\n", s.p.dir, superuser)
	require.NoError(s.t, errors.Join(err, conf.Close()))
	signal := filepath.Join(copied, "standby.signal")
	require.NoError(s.t, os.WriteFile(signal, nil, 0o644))
	return StartOn(s.t, copied, slices.Concat(Replicated, settings)...)
}

// Detach disconnects a standby from its primary: it does not get further commits.
func (s *Server) Detach() {
	s.t.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		require.NoError(s.t, s.p.exec(s.t.Context(), sql))
	}
	require.Eventually(s.t, func() bool {
		return s.p.exec(s.t.Context(), "SELECT 1 / (1 - count(*)) FROM pg_stat_wal_receiver") == nil
	}, patience, pollEvery)
}

// Promote makes a standby a primary, on its own timeline.
func (s *Server) Promote() {
	s.t.Helper()
	require.NoError(s.t, s.p.exec(s.t.Context(), "SELECT pg_promote()"))
}

// Replicated are the settings of a server that others may replicate.
var Replicated = []string{"wal_level=replica", "max_wal_senders=4"}

// Copy returns a copy of the data at one instant, like a disk backup. The server is frozen
// meanwhile, unless it was killed. The copy is removed with the server.
func (s *Server) Copy() (copied string) {
	s.t.Helper()
	if s.p.life.Runs() {
		s.Stop()
		defer s.Cont()
	}
	copied, err := s.p.copyOf(s.p.data())
	require.NoError(s.t, err)
	return copied
}

// RestartOn kills the server if it is running, and starts it again on a copy: later commits are
// lost, as in a failover to a lagging replica. It returns the server's previous data, as another
// copy. The copy that it starts from stays unchanged.
func (s *Server) RestartOn(copied string) (lost string) {
	s.t.Helper()
	s.p.kill()
	lost, err := s.p.copyOf(s.p.data())
	require.NoError(s.t, err)
	require.NoError(s.t, os.RemoveAll(s.p.data()))
	require.NoError(s.t, copyTo(copied, s.p.data()))
	require.NoError(s.t, s.p.start())
	return lost
}

// Log returns the server's log since it was created, across restarts.
func (s *Server) Log() string {
	s.t.Helper()
	var all strings.Builder
	for n := range s.p.lives {
		text, err := os.ReadFile(s.p.logOf(n + 1))
		require.NoError(s.t, err)
		all.Write(text)
	}
	return all.String()
}

// server is one cluster. Its folder survives restarts.
type server struct {
	bin, dir string // dir holds the socket, data and log
	settings []string
	life     *process.Process // the present process, or the last; nil before the first
	lives    int
	copies   int
}

func launch(copied string, settings []string) (p *server, err error) {
	p = &server{settings: settings}
	if p.bin, err = findPrograms(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	if err = p.initialize(copied); err == nil {
		err = p.start()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *server) initialize(copied string) error {
	if os.Geteuid() == 0 {
		if err := os.Chown(p.dir, nobody, nobody); err != nil {
			return fmt.Errorf("pgtest: %w", err)
		}
	}
	if copied != "" {
		return copyTo(copied, p.data())
	}
	cmd, err := p.command("initdb", "-D", p.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C",
		"--wal-segsize=1", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb (for root it runs as nobody, who has to reach it): %w\n%s", err, out)
	}
	return nil
}

// copyOf copies a data folder whose server is frozen or not running.
func (p *server) copyOf(data string) (copied string, err error) {
	p.copies++
	copied = filepath.Join(p.dir, fmt.Sprintf("copy%d", p.copies))
	return copied, copyTo(data, copied)
}

// copyTo preserves owners and permissions, which a server checks, and removes the pid file of a
// running server.
func copyTo(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: copy: %w\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(to, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("pgtest: copy: %w", err)
	}
	return nil
}

// command runs one of PostgreSQL's programs as a user that it accepts. On Linux the program gets
// SIGQUIT when the thread that started it ends; a server then ends its connections and shared
// memory too.
func (p *server) command(program string, args ...string) (*exec.Cmd, error) {
	argv := append([]string{filepath.Join(p.bin, program)}, args...)
	if runtime.GOOS == "linux" {
		prefix := []string{"setpriv", "--pdeathsig", "QUIT"}
		if os.Geteuid() == 0 {
			id := strconv.Itoa(nobody)
			prefix = append(prefix, "--reuid", id, "--regid", id, "--clear-groups")
		}
		argv = append(prefix, argv...)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Dir = p.dir // the user nobody may not be able to read the current one
	return cmd, nil
}

func (p *server) start() error {
	args := []string{"-D", p.data()}
	for _, setting := range slices.Concat([]string{
		"listen_addresses=", "unix_socket_directories=" + p.dir, "unix_socket_permissions=0700",
		"fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
		"max_connections=300", "shared_buffers=32MB", "jit=off", "deadlock_timeout=200ms",
		"timezone=UTC", "log_timezone=UTC",
	}, p.settings) {
		args = append(args, "-c", setting)
	}
	cmd, err := p.command("postgres", args...)
	if err != nil {
		return err
	}
	p.lives++
	p.life, err = process.Start(cmd, process.Options{Log: p.logOf(p.lives), OwnGroup: true})
	if err != nil {
		return fmt.Errorf("pgtest: start: %w", err)
	}
	return p.awaitReady()
}

// awaitReady connects until the server answers. No other server has a socket in our folder.
func (p *server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, p.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.life.Done():
			return fmt.Errorf("pgtest: postgres ended:\n%s", p.log())
		case <-ctx.Done():
			return fmt.Errorf("pgtest: postgres not ready within %s: %w\n%s", patience, err, p.log())
		case <-tick.C:
		}
	}
}

// kill ends the server and its connections, and returns once all are gone: a new server could not
// take over shared memory that any of them still uses.
func (p *server) kill() {
	if !p.life.Runs() {
		return
	}
	_ = p.life.Signal(syscall.SIGSTOP) // or it has just ended; from here on no further process appears
	backends := p.backends()
	p.life.Kill()
	for _, pid := range backends {
		for syscall.Kill(pid, syscall.SIGKILL) == nil && !zombie(pid) {
			time.Sleep(pollEvery)
		}
	}
}

// close ends the cluster for good and removes it. A killed server leaves shared memory that only
// another start can remove.
func (p *server) close() (err error) {
	if p.life != nil {
		if !p.life.Runs() && p.life.ExitCode() < 0 {
			err = p.start()
		}
		// A frozen server has to be resumed first. Errors mean that it has ended.
		for _, pid := range append(p.backends(), p.life.PID()) {
			if p.life.Runs() {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		}
		_ = p.life.Signal(syscall.SIGQUIT)
		select {
		case <-p.life.Done():
		case <-time.After(patience):
			err = errors.Join(err, fmt.Errorf("pgtest: postgres does not stop within %s", patience))
		}
		p.life.Kill()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// backends returns the processes of the server's connections and helpers. They are only visible
// on Linux.
func (p *server) backends() (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.life.PID()))
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombie reports whether a process has ended but has not been waited for.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func (p *server) url(database string) string { return urlOf(superuser, p.dir, database) }

func (p *server) data() string { return filepath.Join(p.dir, "data") }

func (p *server) logOf(life int) string { return filepath.Join(p.dir, fmt.Sprintf("log%d", life)) }

func (p *server) log() string {
	text := p.life.Log()
	return text[max(0, len(text)-logTail):]
}

var errNoPrograms = errors.New("pgtest: no PostgreSQL: set POSTGRES_BIN to what scripts/postgres prints")

// findPrograms returns the folder of initdb and postgres. POSTGRES_BIN is binding: if it lacks
// them, nothing else is tried.
func findPrograms() (string, error) {
	if named := os.Getenv("POSTGRES_BIN"); named != "" {
		if !hasPrograms(named) {
			return "", fmt.Errorf("pgtest: POSTGRES_BIN=%s has no initdb and postgres", named)
		}
		return named, nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && hasPrograms(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if folder := filepath.Join(dir, cached); hasPrograms(folder) {
			return folder, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", errNoPrograms
}

func hasPrograms(folder string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}
