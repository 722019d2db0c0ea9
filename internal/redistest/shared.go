package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// common is the test binary's one shared server, started by whoever asks first.
var common struct {
	sync.Mutex
	inMain bool // Main is there to stop it
	p      *server
	err    error // of the only attempt: it is not going to get better
}

// Shared returns the test binary's one real server, started at the first call
// and stopped by [Main]. Other tests use it at the same time: keep to the keys
// under a [Prefix], change no setting, flush nothing.
func Shared(t testing.TB) *Server {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if !common.inMain {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main")
	}
	if common.p == nil && common.err == nil {
		common.p, common.err = launchShared()
	}
	require.NoError(t, common.err)
	return &Server{t: t, p: common.p, shared: true}
}

func launchShared() (*server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	p, err := launch("", dir, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

func stopShared() error {
	common.Lock()
	defer common.Unlock()
	if common.p == nil {
		return nil
	}
	return errors.Join(common.p.close(), os.RemoveAll(common.p.dir))
}

// Main is the body of a package's TestMain: it runs the tests, stops the shared
// server and fails the package when a goroutine is left. It does not return.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m *testing.M) {
	common.Lock()
	common.inMain = true
	common.Unlock()

	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// A failed test often leaves something behind; its own words matter more.
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}
