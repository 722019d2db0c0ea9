package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is for what takes milliseconds, on a machine that does a lot else.
const patience = 2 * time.Minute

var migrated = pgtest.Template{Prepare: func(ctx context.Context, url string) error {
	src, err := postgres.Open(ctx, url, postgres.Timeout(patience))
	if err != nil {
		return err
	}
	defer src.Close()
	return src.Migrate(ctx)
}}

// world is a database, and a Source of it.
type world struct {
	*require.Assertions
	*postgres.Source
	*pgtest.DB
	t   *testing.T
	ctx context.Context
}

func on(t *testing.T, db *pgtest.DB) (world, context.Context) {
	t.Helper()
	return world{require.New(t), open(t, db.URL), db, t, t.Context()}, t.Context()
}

// setup is a database with the schema, of a test that runs beside others.
func setup(t *testing.T) (world, context.Context) {
	t.Helper()
	t.Parallel()
	return on(t, migrated.Database(t))
}

// blank is an empty database.
func blank(t *testing.T) (world, context.Context) {
	t.Helper()
	t.Parallel()
	return on(t, pgtest.Database(t))
}

// former is a database that has had these before it was migrated.
func former(t *testing.T, sql string) (world, context.Context) {
	t.Helper()
	w, ctx := blank(t)
	w.exec(sql)
	w.NoError(w.Migrate(ctx))
	return w, ctx
}

// setupAlone is setup on a server of the test's own: others' transactions hold back what a feed has
// seen.
func setupAlone(t *testing.T, args ...string) (world, context.Context) {
	t.Helper()
	t.Parallel()
	w, ctx := on(t, pgtest.Start(t, append(args, "autovacuum=off")...).Database())
	w.NoError(w.Migrate(ctx))
	return w, ctx
}

// did requires that a call went well.
func (w world) did(_ any, err error) {
	w.t.Helper()
	w.NoError(err)
}

// moved requires that a call for a session went well.
func (w world) moved(_ availability.Session, _ []availability.State, err error) {
	w.t.Helper()
	w.NoError(err)
}

// refused requires that a call for a session fails so.
func (w world) refused(want error, why ...any) func(availability.Session, []availability.State, error) {
	w.t.Helper()
	return func(_ availability.Session, _ []availability.State, err error) {
		w.t.Helper()
		w.ErrorIs(err, want, why...)
	}
}

func open(t *testing.T, url string, opts ...postgres.Option) *postgres.Source {
	t.Helper()
	opts = append([]postgres.Option{postgres.Timeout(patience)}, opts...)
	src, err := postgres.Open(t.Context(), url+"&pool_max_conns=20", opts...)
	require.NoError(t, err)
	t.Cleanup(src.Close)
	return src
}

func (w world) exec(sql string, args ...any) {
	w.t.Helper()
	w.did(w.Exec(w.ctx, sql, args...))
}

// one returns the only value that a query selects.
func one[T any](w world, sql string, args ...any) (value T) {
	w.t.Helper()
	require.NoError(w.t, w.QueryRow(w.t.Context(), sql, args...).Scan(&value))
	return value
}

func (w world) mitra() string {
	w.t.Helper()
	return one[string](w, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
}

func (w world) mitras(n int) (ids []string) {
	w.t.Helper()
	for range n {
		ids = append(ids, w.mitra())
	}
	return ids
}

// session makes a session; mitra may be nil.
func (w world) session(status string, mitra any) string {
	w.t.Helper()
	return one[string](w, "INSERT INTO chat_sessions (status, mitra_id) VALUES ($1, $2) RETURNING id::text", status, mitra)
}

// state returns the Source's state of one mitra.
func (w world) state(id string) availability.State {
	w.t.Helper()
	states, err := w.States(w.ctx, []string{id})
	w.NoError(err)
	w.Len(states, 1)
	return states[0]
}

// requireTruth requires that every state matches the tables, and that the Source agrees.
func (w world) requireTruth() {
	w.t.Helper()
	w.Zero(one[int](w, `SELECT count(*) FROM mitra_availability_truth t FULL JOIN mitra_availability a USING (mitra_id)
		WHERE (t.is_online, t.is_active, t.active_sessions) IS DISTINCT FROM (a.is_online, a.is_active, a.active_sessions)`))
	repaired, err := w.Repair(w.ctx)
	w.NoError(err)
	w.Empty(repaired)
}

func fine() error { return nil }

var errNo = errors.New("no")

// awaitLocked returns when somebody waits for a lock in the database.
func (w world) awaitLocked() {
	w.t.Helper()
	w.Eventually(func() bool { return w.locked() > 0 }, patience, 5*time.Millisecond)
}

func (w world) locked() int {
	return one[int](w, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// begin begins a transaction that does not outlive the test.
func (w world) begin() pgx.Tx {
	w.t.Helper()
	tx, err := w.Begin(w.ctx)
	w.NoError(err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or it is over
	return tx
}

// connect opens one connection of another role.
func (w world) connect(url string) *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.ctx, url)
	w.NoError(err)
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // or the test has closed it
	return conn
}
