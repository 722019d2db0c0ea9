package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

func TestCopiesOfATemplateAreAsPreparedAndApart(t *testing.T) {
	t.Parallel()
	prepared := 0
	template := pgtest.Template{Prepare: func(ctx context.Context, url string) error {
		prepared++
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "CREATE TABLE things (id int); INSERT INTO things VALUES (1)")
		return err
	}}
	one, other := template.Database(t), template.Database(t)
	exec1(t, one, "INSERT INTO things VALUES (2)")
	require.Equal(t, 2, count(t, one))
	require.Equal(t, 1, count(t, other))
	require.Equal(t, 1, prepared)
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

func TestAServerIsSetBackToACopyAndWhatItLostCanBeRead(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	db := s.Database()
	exec1(t, db, "CREATE TABLE things (id int); INSERT INTO things VALUES (1)")
	copied := s.Copy()
	exec1(t, db, "INSERT INTO things VALUES (2)")
	for range 2 { // the copy is as good as new
		lost := s.RestartOn(copied)
		db.Reset()
		require.Equal(t, 1, count(t, db))
		exec1(t, db, "INSERT INTO things VALUES (3), (4), (5)")
		conn, err := pgx.Connect(t.Context(), pgtest.StartOn(t, lost).URL(db.Name))
		require.NoError(t, err)
		defer conn.Close(t.Context())
		var n int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n))
		require.Contains(t, []int{2, 4}, n)
	}
	require.Equal(t, 3, strings.Count(s.Log(), "ready to accept connections"))
}

func TestAStandbyThatIsPromotedHasWhatItGotUntilItWasDetached(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Replicated...)
	db := s.Database()
	exec1(t, db, "CREATE TABLE things (id int); INSERT INTO things VALUES (1)")
	standby := s.Standby()
	conn, err := pgx.Connect(t.Context(), standby.URL(db.Name))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	counted := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n))
		return n
	}
	exec1(t, db, "INSERT INTO things VALUES (2)")
	require.Eventually(t, func() bool { return counted() == 2 }, time.Minute, 5*time.Millisecond)
	standby.Detach()
	exec1(t, db, "INSERT INTO things VALUES (3)")
	s.Kill()
	s.Copy()
	standby.Promote()
	_, err = conn.Exec(t.Context(), "INSERT INTO things VALUES (4), (5)")
	require.NoError(t, err)
	require.Equal(t, 4, counted())
}

func TestAFrozenServerAnswersNobodyUntilItGoesOn(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	db := s.Database()
	exec1(t, db, "CREATE TABLE things (id int)")
	s.Stop()
	answered := make(chan error, 1)
	go func() {
		_, err := db.Exec(context.Background(), "INSERT INTO things VALUES (1)")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatal("a frozen server answered:", err)
	case <-time.After(100 * time.Millisecond): // less proves less, and fails nothing
	}
	s.Cont()
	require.NoError(t, <-answered)
	require.Equal(t, 1, count(t, db))
	s.Stop() // and is removed with the test in this state
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
