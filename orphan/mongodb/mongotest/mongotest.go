// Package mongotest gives tests a server that speaks MongoDB's protocol.
//
//   - [Database]: the test's own database, on one server for the whole test binary.
//   - [Start]: the test's own server, to kill.
//
// Packages that use it need a TestMain that calls [Main].
//
// The server is FerretDB, from the program in FERRET_SERVER, which scripts/ferret prints. If
// MONGODB_URI names a real server, databases are created and dropped there. Without either, a
// test is skipped; "make test" fails if one is.
package mongotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A Server is a FerretDB process of this package.
type Server struct {
	t    testing.TB
	p    *process.Process
	addr string
}

// Start returns once a FerretDB answers, on a free loopback port, even if MONGODB_URI is set. It is
// removed with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := launch()
	skipIfNone(t, err)
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

var errNone = errors.New("no MongoDB here: set FERRET_SERVER to what scripts/ferret prints, or MONGODB_URI")

func skipIfNone(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNone) {
		t.Skip("skipped:", err)
	}
	require.NoError(t, err)
}

func launch() (*Server, error) {
	binary := os.Getenv("FERRET_SERVER")
	if binary == "" {
		return nil, errNone
	}
	cmd := exec.Command(binary)
	cmd.Stderr = os.Stderr
	p, err := process.Start(cmd, process.Options{Talk: true, OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("mongotest: FERRET_SERVER: %w", err)
	}
	if !p.Out.Scan() {
		p.Kill()
		return nil, fmt.Errorf("mongotest: %s ended without an address, with status %d", binary, p.ExitCode())
	}
	said, err := url.Parse(p.Out.Text())
	if err != nil || said.Host == "" {
		p.Kill()
		return nil, fmt.Errorf("mongotest: %s said %q instead of its URI", binary, p.Out.Text())
	}
	return &Server{p: p, addr: said.Host}, nil
}

// Addr is host:port.
func (s *Server) Addr() string { return s.addr }

// Kill ends the server, which removes its data.
func (s *Server) Kill() {
	_ = s.p.In.Close() // makes it end; fails only if it already has
	select {
	case <-s.p.Done():
	case <-time.After(patience):
	}
	s.p.Kill()
}

// Database creates a database, which is removed with the server.
func (s *Server) Database() *DB {
	s.t.Helper()
	return newDB(s.t, "mongodb://"+s.addr, newName(), false)
}

func newName() string { return fmt.Sprintf("rollcall_test_%x", rand.Uint64()) }

const patience = 30 * time.Second

// A DB is a test's own database.
type DB struct {
	*mongo.Database        // the test writes to it
	URI             string // for the code under test
}

// Through returns the database's URI via a proxy at this address.
func (d *DB) Through(addr string) string {
	return "mongodb://" + addr + "/" + d.Name() + "?directConnection=true"
}

func newDB(t testing.TB, server, name string, drop bool) *DB {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil { // its text quotes the URI with its password
		t.Fatal("mongotest: MONGODB_URI is not a URI with one host")
	}
	u.Path = "/" + name
	client, err := mongo.Connect(options.Client().ApplyURI(u.String()).SetTimeout(patience))
	require.NoError(t, err)
	db := &DB{Database: client.Database(name), URI: u.String()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if drop {
			require.NoError(t, db.Drop(ctx))
		}
		require.NoError(t, client.Disconnect(ctx))
	})
	return db
}

var common struct {
	sync.Mutex
	inMain bool
	uri    string
	server *Server // nil if MONGODB_URI is used
	err    error   // of the only attempt
}

// Database creates a database on the test binary's one server, and drops it after the test.
func Database(t testing.TB) *DB {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if !common.inMain {
		t.Fatal("mongotest: Database needs a TestMain that calls mongotest.Main")
	}
	if common.uri == "" && common.err == nil {
		if common.uri = os.Getenv("MONGODB_URI"); common.uri == "" {
			if common.server, common.err = launch(); common.err == nil {
				common.uri = "mongodb://" + common.server.addr
			}
		}
	}
	skipIfNone(t, common.err)
	return newDB(t, common.uri, newName(), true)
}

// Main is the body of a TestMain: [redistest.Main] that also stops this package's server. It does
// not return.
func Main(m *testing.M) {
	common.Lock()
	common.inMain = true
	common.Unlock()
	redistest.Main(runner{m})
}

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	common.Lock()
	defer common.Unlock()
	if common.server != nil {
		common.server.Kill()
	}
	return code
}
