package pgtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func count(t *testing.T, db *pgtest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n))
	return n
}

func exec1(t *testing.T, db *pgtest.DB, sql string) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestWhatWasCommittedOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	db := s.Database()
	exec1(t, db, "CREATE TABLE things (id int); INSERT INTO things VALUES (1)")
	first := s.PID()
	s.Kill()
	_, err := db.Exec(t.Context(), "INSERT INTO things VALUES (2)")
	require.Error(t, err)
	s.Restart()
	require.NotEqual(t, first, s.PID())
	db.Reset() // of the connections of its former life
	require.Equal(t, 1, count(t, db))
}

// asParent makes this test's binary a parent that starts a server and is killed then.
const asParent = "PGTEST_AS_PARENT"

func TestAServerEndsWithATestBinaryThatIsKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv(asParent) != "" {
		s := pgtest.Start(t)
		fmt.Println("started", s.PID(), s.Dir())
		<-t.Context().Done()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asParent+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pid int
	var dir string
	_, err = fmt.Fscanf(out, "started %d %s\n", &pid, &dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // nobody may have waited for it yet
	}, time.Minute, 5*time.Millisecond)
}

func TestAFolderWithoutPostgresIsRefusedByName(t *testing.T) {
	nowhere := t.TempDir()
	t.Setenv("POSTGRES_BIN", nowhere)
	failed := &failure{TB: t}
	done := make(chan struct{})
	go func() { // FailNow ends the goroutine
		defer close(done)
		pgtest.Start(failed)
	}()
	<-done
	require.Contains(t, failed.text, "POSTGRES_BIN="+nowhere)
}

// failure is a testing.TB that keeps what it should have failed with.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }
func (f *failure) FailNow()                          { runtime.Goexit() }
