package mongotest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestMain(m *testing.M) { Main(m) }

func TestAServerEndsWithItsParentAndRemovesItsData(t *testing.T) {
	for name, end := range map[string]func(*Server) error{
		"its input ends": func(s *Server) error { return s.p.In.Close() },
		"SIGTERM":        func(s *Server) error { return s.p.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			t.Setenv("TMPDIR", data)
			s := Start(t)
			db := s.Database()
			_, err := db.Collection("c").InsertOne(t.Context(), bson.M{"_id": 1})
			require.NoError(t, err)
			left, err := os.ReadDir(data)
			require.NoError(t, err)
			require.Len(t, left, 1)

			require.NoError(t, end(s))
			require.Zero(t, s.p.ExitCode())
			left, err = os.ReadDir(data)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestWithoutAServerATestIsSkippedWithAReason(t *testing.T) {
	t.Setenv("FERRET_SERVER", "")
	test, ended := &skipped{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		Start(test)
	}()
	<-ended
	require.Contains(t, test.why, "skipped: no MongoDB here")
	require.Contains(t, test.why, "scripts/ferret")
}

// skipped is a test that remembers why it was skipped.
type skipped struct {
	testing.TB
	why string
}

func (s *skipped) Skip(args ...any) {
	s.why = fmt.Sprintln(args...)
	runtime.Goexit()
}

func TestAServerThatIsNoneFailsTheTest(t *testing.T) {
	t.Setenv("FERRET_SERVER", "/bin/false")
	_, err := launch()
	require.ErrorContains(t, err, "ended without an address")
	t.Setenv("FERRET_SERVER", "/nowhere/ferret")
	_, err = launch()
	require.ErrorContains(t, err, "FERRET_SERVER")
}
