package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// A shell is a command typed on a terminal.
type shell struct {
	cmd    *exec.Cmd
	person *os.File
	out    process.Buffer
	read   sync.WaitGroup
}

// typed runs a command of the README in the repository's folder, on its own terminal.
func typed(t *testing.T, command string, env ...string) *shell {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	fd := int(person.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close()
	s := &shell{cmd: exec.Command("bash", "-c", command), person: person}
	s.cmd.Dir = "../.."
	s.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { // of a make around this test
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") ||
			strings.HasPrefix(v, "REDIS_URL=")
	}), env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = terminal, terminal, terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, s.cmd.Start())
	// returns an error once nobody has the terminal
	s.read.Go(func() { _, _ = io.Copy(&s.out, person) })
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // most have ended
		s.read.Wait()
		_ = person.Close()
		if t.Failed() {
			t.Log(s.out.String())
		}
	})
	return s
}

func (s *shell) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.out.String(), text) }, 5*time.Minute,
		5*time.Millisecond, text)
}

// Only the addresses differ: those of the README may be in use on this machine.
func TestTwoReplicasByTheREADMEWorkSideBySideAndCtrlCIsNoError(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	commands := regexp.MustCompile("`(make run ARGS=[^`]*--redis-url=[^`]*)`").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, commands, 2)
	server := redistest.Start(t)
	var shells []*shell
	for _, command := range commands {
		mine := strings.NewReplacer("127.0.0.1:6379", server.Addr(), "=:5028", "=127.0.0.1:0",
			"127.0.0.1:8081", "127.0.0.1:0").Replace(command[1])
		s := typed(t, mine, "INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0")
		s.says(t, "listening for devices")
		shells = append(shells, s)
	}
	require.Contains(t, commands[1][1], "--ingest-addr=", "the second one has addresses of its own")
	require.Contains(t, commands[1][1], "--http-addr=")
	require.Eventually(t, func() bool {
		return server.Client().SCard(t.Context(), registry.Layout{}.Roster()).Val() == 2
	}, patience, 5*time.Millisecond)
	for _, s := range shells {
		_, err := s.person.WriteString("\x03")
		require.NoError(t, err)
		require.NoError(t, s.cmd.Wait(), "Ctrl-C is no error")
		s.read.Wait()
		require.Contains(t, s.out.String(), "msg=stopped")
		require.NotContains(t, s.out.String(), "Error")
	}
}
