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

	"github.com/rollcall-redis/rollcall/internal/process"
)

// asChild makes the test binary a process that passes points, as its input directs.
const asChild = "ROLLCALL_TEST_AS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		obey()
		return
	}
	os.Exit(m.Run())
}

// obey reads lines with names of points, which it hits concurrently. It answers each line with
// "back".
func obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("back") {
		var all sync.WaitGroup
		for _, name := range strings.Fields(lines.Text()) {
			all.Go(func() { Hit(Name(name)) })
		}
		all.Wait()
	}
}

type child struct {
	*process.Process
	t   *testing.T
	err *strings.Builder // read after it has ended
}

func start(t *testing.T, dir string) *child {
	t.Helper()
	c := &child{t: t, err: &strings.Builder{}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"=1", Folder+"="+dir)
	cmd.Stderr = c.err
	var err error
	c.Process, err = process.Start(cmd, process.Options{Talk: true})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	return c
}

// hit sends the child past points, without waiting.
func (c *child) hit(names ...string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.In, strings.Join(names, " "))
	require.NoError(c.t, err)
}

// back waits until the child has passed the points of one hit.
func (c *child) back() {
	c.t.Helper()
	require.True(c.t, c.Out.Scan(), "the child has ended")
	require.Equal(c.t, "back", c.Out.Text())
}
