package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// Failpoints are a replica's orders. A process restarted under the same id continues with them.
type Failpoints struct {
	dir string
}

// Arm orders an action at a point's next hit, or a later one: "stop", "kill", "wait 200ms",
// "stop 3". The last order must have been taken, by a process that has resumed or ended since.
func (f Failpoints) Arm(t Test, name failpoint.Name, order string) {
	t.Helper()
	require.False(t, f.Has(t, name, ""), "failpoint %s: the last order was not taken", name)
	for _, suffix := range []string{".taken", ".woken"} {
		if f.Has(t, name, suffix) {
			require.NoError(t, os.Remove(f.path(name, suffix)))
		}
	}
	ready := f.path(name, ".order")
	require.NoError(t, os.WriteFile(ready, []byte(order), 0o600))
	require.NoError(t, os.Rename(ready, f.path(name, ""))) // a process must not read half an order
}

// Disarm reports whether the order was still pending; else it is being carried out.
func (f Failpoints) Disarm(t Test, name failpoint.Name) bool {
	t.Helper()
	err := os.Remove(f.path(name, ""))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return err == nil
}

// Taken reports whether a hit has taken the order.
func (f Failpoints) Taken(t Test, name failpoint.Name) bool { return f.Has(t, name, ".taken") }

// Wait returns when a hit has taken the order.
func (f Failpoints) Wait(t Test, name failpoint.Name) {
	t.Helper()
	Eventually(t, "failpoint "+string(name)+" is hit", func() bool { return f.Taken(t, name) })
}

// Resume wakes a process that has stopped itself. It repeats the signal, since the first SIGCONT
// may have come before the stop.
func (f Failpoints) Resume(t Test, name failpoint.Name, cont func()) {
	t.Helper()
	f.Wait(t, name)
	Eventually(t, "failpoint "+string(name)+" is left", func() bool {
		cont()
		return f.Has(t, name, ".woken")
	})
}

// Hits counts a point's hits that have acted.
func (f Failpoints) Hits(t Test, name failpoint.Name) int {
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

func (f Failpoints) path(name failpoint.Name, suffix string) string {
	return filepath.Join(f.dir, string(name)+suffix)
}

// Has looks for a point's file.
func (f Failpoints) Has(t Test, name failpoint.Name, suffix string) bool {
	t.Helper()
	_, err := os.Stat(f.path(name, suffix))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return err == nil
}
