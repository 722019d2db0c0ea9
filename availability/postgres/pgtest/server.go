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
	logTail   = 8 << 10 // bytes shown by a failed test
	cached    = ".cache/postgres/bin"
)

// A Server belongs to one test. Its methods fail that test.
type Server struct {
	t testing.TB
	p *server
}

// Start returns once the test's server answers. It is removed with the test; a failed test shows
// the end of its log. Settings override the defaults, for example
//
//	pgtest.Start(t, "synchronous_commit=off") // a kill loses the latest commits
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, "", settings)
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

// Database creates an empty database.
func (s *Server) Database() *DB {
	s.t.Helper()
	return s.p.database(s.t, "template0")
}

// URL returns a database's URL, for the superuser.
func (s *Server) URL(database string) string { return s.p.url(database) }

// PID is the server's, or its last one.
func (s *Server) PID() int { return s.p.life.PID() }

// Dir returns the folder of the socket.
func (s *Server) Dir() string { return s.p.dir }

// Stop freezes the server with its connections (SIGSTOP). Only the kernel accepts new ones.
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

// Kill ends the server and its connections (SIGKILL), even frozen ones.
func (s *Server) Kill() {
	s.t.Helper()
	s.p.kill()
}

// Restart kills the server if it runs, and starts it again with its data and URL, until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.p.kill()
	require.NoError(s.t, s.p.start())
}

// Standby starts a server that replicates this one, which needs Replicated.
func (s *Server) Standby() *Server {
	s.t.Helper()
	copied := s.Copy()
	conf, err := os.OpenFile(filepath.Join(copied, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = fmt.Fprintf(conf, "primary_conninfo = 'host=%s user=%s'\n", s.p.dir, superuser)
	require.NoError(s.t, errors.Join(err, conf.Close()))
	signal := filepath.Join(copied, "standby.signal")
	require.NoError(s.t, os.WriteFile(signal, nil, 0o644))
	return start(s.t, copied, Replicated)
}

// Replicated are the settings of a server that others may replicate.
var Replicated = []string{"wal_level=replica", "max_wal_senders=4"}

// Copy returns a copy of the data at one instant, which is removed with the server.
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

// RestartOn is Restart on a copy: later commits are lost, as in a failover to a lagging replica.
func (s *Server) RestartOn(copied string) {
	s.t.Helper()
	s.p.kill()
	require.NoError(s.t, os.RemoveAll(s.p.data()))
	require.NoError(s.t, copyTo(copied, s.p.data()))
	require.NoError(s.t, s.p.start())
}

// Log returns the log across restarts.
func (s *Server) Log() string { return s.p.former + s.p.life.Log() }

type server struct {
	bin, dir string // socket, data and log
	settings []string
	life     *process.Process // the present process, or the last; nil before the first
	former   string           // log of earlier ones
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

func (p *server) copyOf(data string) (copied string, err error) {
	p.copies++
	copied = filepath.Join(p.dir, fmt.Sprintf("copy%d", p.copies))
	return copied, copyTo(data, copied)
}

// copyTo preserves owners and permissions, which a server checks, and removes the pid file.
func copyTo(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: copy: %w\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(to, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("pgtest: copy: %w", err)
	}
	return nil
}

// command runs a program as a user that it accepts. On Linux it gets SIGQUIT when the thread that
// started it ends; a server then ends its connections and shared memory too.
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
	cmd.Dir = p.dir // nobody may not be able to read the current one
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
	if p.life != nil {
		p.former += p.life.Log()
	}
	p.life, err = process.Start(cmd, process.Options{Log: filepath.Join(p.dir, "log"), OwnGroup: true})
	if err != nil {
		return fmt.Errorf("pgtest: start: %w", err)
	}
	return p.awaitReady()
}

// awaitReady connects: no other server has a socket in our folder.
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

// kill returns once all connections are gone: a new server could not take over shared memory that
// any of them still uses.
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

// close removes the cluster. A killed server leaves shared memory that only another start can
// remove.
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

// backends returns the processes of connections and helpers, on Linux only.
func (p *server) backends() (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.life.PID()))
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func (p *server) url(database string) string { return urlOf(superuser, p.dir, database) }

func (p *server) data() string { return filepath.Join(p.dir, "data") }

func (p *server) log() string {
	text := p.life.Log()
	return text[max(0, len(text)-logTail):]
}

var errNoPrograms = errors.New("pgtest: no PostgreSQL: set POSTGRES_BIN to what scripts/postgres prints")

// findPrograms returns the folder of initdb and postgres. If POSTGRES_BIN lacks them, nothing else
// is tried.
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
