package failpoint

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// asChild makes the test binary a process that comes by points, as its input says.
const asChild = "ROLLCALL_TEST_AS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		obey()
		return
	}
	os.Exit(m.Run())
}

// obey reads lines: names of points, which are hit at once and side by side. It answers each line with "back".
func obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("back") {
		var all sync.WaitGroup
		for _, name := range strings.Fields(lines.Text()) {
			all.Go(func() { Hit(Name(name)) })
		}
		all.Wait()
	}
}

// child is such a process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
	err *strings.Builder // to be read when it has ended
}

func start(t *testing.T, dir string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), err: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), asChild+"=1", Folder+"="+dir)
	c.cmd.Stderr = c.err
	fromUs, in, err := os.Pipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.cmd.Stdin, c.in, c.out = fromUs, in, bufio.NewReader(out)
	require.NoError(t, c.cmd.Start())
	require.NoError(t, fromUs.Close())
	t.Cleanup(func() {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill() // it may have ended, or stand still
		_ = c.cmd.Wait()
	})
	return c
}

// hit sends the child past points; it does not wait.
func (c *child) hit(names ...string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, strings.Join(names, " "))
	require.NoError(c.t, err)
}

// back waits until the child has come past the points of one hit.
func (c *child) back() {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, "back\n", line)
}
