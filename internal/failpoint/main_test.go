package failpoint

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// obey reads lines: "hit" or "past" and names of points, come by at once and side by side. It answers each line with how
// many hits gave back a context without an end.
func obey() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var (
			all   sync.WaitGroup
			acted atomic.Int32
			words = strings.Fields(lines.Text())
		)
		for _, name := range words[1:] {
			all.Go(func() {
				if words[0] == "hit" {
					Hit(Name(name))
				} else if HitPast(ended, Name(name)).Err() == nil {
					acted.Add(1)
				}
			})
		}
		all.Wait()
		fmt.Println(acted.Load())
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
		require.NotContains(t, c.err.String(), "DATA RACE")
	})
	return c
}

// hit sends the child past points; it does not wait.
func (c *child) hit(names ...string) { c.say("hit", names) }

// past is hit for contexts that have ended.
func (c *child) past(names ...string) { c.say("past", names) }

func (c *child) say(how string, names []string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, how, strings.Join(names, " "))
	require.NoError(c.t, err)
}

// back waits until the child has come past the points of one hit, and returns at how many a context lost its end.
func (c *child) back() int {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err)
	n, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(c.t, err)
	return n
}
