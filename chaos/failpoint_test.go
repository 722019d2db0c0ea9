package chaos

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// failpoints are the orders to one replica, in a folder of its own. A process that is started again under the same id
// goes on with it.
type failpoints struct {
	dir string
}

func newFailpoints(t *testing.T) failpoints { return failpoints{t.TempDir()} }

// setting is what the process needs in its environment.
func (f failpoints) setting() (name, value string) { return failpoint.Folder, f.dir }

// arm orders what the process is to do at its next hit of a point, or a later one: "stop", "kill", "wait 200ms", "stop 3".
// What the point's last order left behind is forgotten; it must have been taken, and the process have gone on or ended.
func (f failpoints) arm(t *testing.T, name failpoint.Name, order string) {
	t.Helper()
	require.False(t, f.has(t, name, ""), "failpoint %s: the last order was not taken", name)
	for _, suffix := range []string{".taken", ".woken"} {
		if f.has(t, name, suffix) {
			require.NoError(t, os.Remove(f.path(name, suffix)))
		}
	}
	ready := f.path(name, ".order")
	require.NoError(t, os.WriteFile(ready, []byte(order), 0o600))
	require.NoError(t, os.Rename(ready, f.path(name, ""))) // a process must not read half an order
}

// disarm takes an order back, and tells whether it was still there: if not, it is being followed.
func (f failpoints) disarm(t *testing.T, name failpoint.Name) bool {
	t.Helper()
	err := os.Remove(f.path(name, ""))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return err == nil
}

// taken tells whether a hit has taken the order.
func (f failpoints) taken(t *testing.T, name failpoint.Name) bool { return f.has(t, name, ".taken") }

// wait returns when a hit has taken the order: the process stops, is killed or waits, in a moment if not yet.
func (f failpoints) wait(t *testing.T, name failpoint.Name) {
	t.Helper()
	eventually(t, "failpoint "+string(name)+" is hit", func() bool { return f.taken(t, name) })
}

// resume has a process go on that has stopped itself. It says so again until the process does: the first SIGCONT may have
// come before the stop.
func (f failpoints) resume(t *testing.T, name failpoint.Name, cont func()) {
	t.Helper()
	f.wait(t, name)
	eventually(t, "failpoint "+string(name)+" is left", func() bool {
		cont()
		return f.has(t, name, ".woken")
	})
}

// hits is how many hits of a point have acted so far.
func (f failpoints) hits(t *testing.T, name failpoint.Name) int {
	t.Helper()
	text, err := os.ReadFile(f.path(name, ".hits"))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return n
}

func (f failpoints) path(name failpoint.Name, suffix string) string {
	return filepath.Join(f.dir, string(name)+suffix)
}

func (f failpoints) has(t *testing.T, name failpoint.Name, suffix string) bool {
	t.Helper()
	_, err := os.Stat(f.path(name, suffix))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return err == nil
}
