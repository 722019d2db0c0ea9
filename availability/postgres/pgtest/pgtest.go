// Package pgtest gives tests a real PostgreSQL.
//
//   - [Database]: the test's own database, on one server for the whole test binary.
//   - [Template]: the same, copied from a database that was prepared once.
//   - [Start]: the test's own server, to freeze, kill, restart, copy and reset.
//
// Packages that use it need a TestMain that calls [Main].
//
// POSTGRES_BIN names the folder with the programs, which scripts/postgres prints. Without it, they
// come from the PATH, or else from the project's cache. A missing server fails a test.
//
// A server listens on a socket in a private folder, and on no port. Committed data survives a
// kill, but not a power failure: nothing is synced to disk. For root it runs as the user nobody.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// patience is for things that take milliseconds, on a busy machine.
const patience = 2 * time.Minute

// A DB is a test's own database.
type DB struct {
	*pgxpool.Pool        // a superuser's, for the test's own reads
	Name          string // roles that a test creates need it as a prefix, to be unique
	URL           string // for the code under test, as a superuser
}

// As returns the URL for another role.
func (d *DB) As(role string) string {
	c := d.Config().ConnConfig
	return urlOf(role, c.Host, d.Name)
}

func urlOf(role, folder, name string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s", role, name, folder)
}

// Database creates an empty database on the test binary's one server.
func Database(t testing.TB) *DB {
	t.Helper()
	return shared(t).borrowed(t, "template0")
}

// A Template is a database that is prepared once, and copied for each test.
type Template struct {
	// Prepare fills the database at url and closes its connections.
	Prepare func(ctx context.Context, url string) error

	once sync.Once
	name string
	err  error
}

// Database creates a copy on the test binary's one server.
func (tmpl *Template) Database(t testing.TB) *DB {
	t.Helper()
	p := shared(t)
	tmpl.once.Do(func() {
		tmpl.name, tmpl.err = p.create(context.Background(), "template0")
		if tmpl.err == nil {
			tmpl.err = tmpl.Prepare(context.Background(), p.url(tmpl.name))
		}
	})
	require.NoError(t, tmpl.err)
	return p.borrowed(t, tmpl.name)
}

func (p *server) database(t testing.TB, template string) *DB {
	t.Helper()
	name, err := p.create(t.Context(), template)
	require.NoError(t, err)
	db := &DB{Name: name, URL: p.url(name)}
	db.Pool, err = pgxpool.New(t.Context(), db.URL)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// borrowed creates a database that is removed before the server is.
func (p *server) borrowed(t testing.TB, template string) *DB {
	t.Helper()
	db := p.database(t, template)
	t.Cleanup(func() {
		db.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, p.exec(ctx, "DROP DATABASE "+db.Name+" WITH (FORCE)"))
	})
	return db
}

func (p *server) create(ctx context.Context, template string) (name string, err error) {
	name = fmt.Sprintf("test_%x", rand.Uint64())
	return name, p.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
}

func (p *server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

var common struct {
	sync.Mutex
	inMain bool
	p      *server
	err    error // of the only attempt
}

func shared(t testing.TB) *server {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if !common.inMain {
		t.Fatal("pgtest: Database needs a TestMain that calls pgtest.Main")
	}
	if common.p == nil && common.err == nil {
		common.p, common.err = launch("", nil)
	}
	require.NoError(t, common.err)
	return common.p
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
	if common.p != nil {
		if err := common.p.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}
