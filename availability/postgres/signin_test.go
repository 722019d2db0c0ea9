package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// signIn begins one: it sees an active mitra, and inserts its row.
func (w world) signIn(id string) pgx.Tx {
	w.t.Helper()
	tx := w.begin()
	var active bool
	require.NoError(w.t, tx.QueryRow(w.t.Context(), "SELECT is_active FROM mitras WHERE id = $1", id).Scan(&active))
	require.True(w.t, active)
	return tx
}

func insertSignIn(t *testing.T, tx pgx.Tx, id string) {
	t.Helper()
	_, err := tx.Exec(t.Context(), "INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
	require.NoError(t, err)
}

func (w world) signedIn(id string) int {
	w.t.Helper()
	return one[int](w, "SELECT count(*) FROM auth_sessions WHERE mitra_id = $1 AND revoked_at IS NULL", id)
}

func TestASignInThatIsUnderWayEndsWithADeactivation(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	deactivate := map[string]func(id string){
		"by the writer": func(id string) {
			_, err := w.src.SetActive(ctx, id, false)
			require.NoError(t, err)
		},
		"by SQL": func(id string) { w.exec("UPDATE mitras SET is_active = false WHERE id = $1", id) },
	}
	for name, off := range deactivate {
		// The row exists before the deactivation, or comes only after it. The deactivation waits for
		// neither.
		id := w.mitra()
		early, late := w.signIn(id), w.signIn(id)
		insertSignIn(t, early, id)
		off(id)
		insertSignIn(t, late, id)
		require.NoError(t, early.Commit(ctx), name)
		require.NoError(t, late.Commit(ctx), name)
		require.Zero(t, w.signedIn(id), name)
		w.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
		w.exec("UPDATE auth_sessions SET revoked_at = NULL WHERE mitra_id = $1", id)
		require.Zero(t, w.signedIn(id), "%s: who is deactivated does not sign in", name)
		require.Equal(t, 3, one[int](w, "SELECT count(*) FROM auth_sessions WHERE mitra_id = $1", id))

		_, err := w.src.SetActive(ctx, id, true)
		require.NoError(t, err)
		w.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
		require.Equal(t, 1, w.signedIn(id), "%s: active again", name)
	}
	w.exec("INSERT INTO auth_sessions (mitra_id) VALUES (NULL)") // a customer's
	require.Equal(t, 1, one[int](w, "SELECT count(*) FROM auth_sessions WHERE mitra_id IS NULL AND revoked_at IS NULL"))
}

func TestADeactivationThatIsNotCommittedYetIsWaitedForByASignIn(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		id := w.mitra()
		login := w.signIn(id)
		insertSignIn(t, login, id)
		off := w.begin()
		_, err := off.Exec(ctx, "SELECT availability_set_active($1, false)", id)
		require.NoError(t, err)
		committed := make(chan error, 1)
		go func() { committed <- login.Commit(ctx) }()
		w.awaitLocked()
		_, err = off.Exec(ctx, end)
		require.NoError(t, err)
		require.NoError(t, <-committed)
		require.Equal(t, end == "ROLLBACK", w.signedIn(id) == 1, end)
		_ = off.Rollback(context.Background()) // it is over
	}
}

func TestAMomentWithoutTimeZoneIsUTCAlsoWhereASignInIsRevoked(t *testing.T) {
	t.Parallel()
	db, ctx := pgtest.Database(t), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	w.exec("CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamp)")
	require.NoError(t, w.src.Migrate(ctx))
	id := w.mitra()
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", id)
	w.exec("SET timezone = 'Asia/Jakarta'; INSERT INTO auth_sessions VALUES ('t', '" + id + "', NULL)")
	require.Less(t, one[float64](w, "SELECT abs(extract(epoch FROM (now() AT TIME ZONE 'UTC') - revoked_at))::float8 FROM auth_sessions"), patience.Seconds())
}

func TestASignInOfAMitraThatNobodyKnowsIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	w := world{DB: db, t: t, src: open(t, db.URL)}
	w.exec("CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamptz)")
	require.NoError(t, w.src.Migrate(t.Context()))
	w.exec("INSERT INTO auth_sessions VALUES ('t', $1, NULL)", nobody)
	require.Equal(t, 1, w.signedIn(nobody))
}

// Without the right nobody could sign in any more.
func TestAMigrationWhoseRoleCannotRevokeSignInsIsRefused(t *testing.T) {
	t.Parallel()
	db, ctx := pgtest.Database(t), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	role := db.Name + "_maker"
	w.exec("CREATE TABLE mitras (id uuid PRIMARY KEY, is_active boolean, display_name text)")
	w.exec("CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamptz)")
	w.exec("CREATE INDEX availability_names ON mitras ((coalesce(display_name::text, '')), id)")
	w.exec("CREATE ROLE " + role + " LOGIN; GRANT CREATE ON SCHEMA public TO " + role +
		"; GRANT SELECT, REFERENCES, TRIGGER ON mitras, auth_sessions TO " + role)
	maker := open(t, db.As(role))
	require.ErrorContains(t, maker.Migrate(ctx), "needs the right to UPDATE mitras and auth_sessions")
	w.exec("GRANT UPDATE ON mitras, auth_sessions TO " + role)
	require.NoError(t, maker.Migrate(ctx))
	require.NoError(t, maker.Check(ctx))
	w.exec("INSERT INTO mitras VALUES ($1, false)", nobody)
	w.exec("INSERT INTO auth_sessions VALUES ('t', $1, NULL)", nobody)
	require.Zero(t, w.signedIn(nobody))
	w.exec("ALTER TABLE auth_sessions DISABLE TRIGGER availability_sign_in")
	require.ErrorContains(t, maker.Check(ctx), "trigger availability_sign_in on auth_sessions")
	w.exec("DROP OWNED BY " + role + " CASCADE; DROP ROLE " + role)
}

func TestAStatusThatTheTableDoesNotHaveIsNamed(t *testing.T) {
	t.Parallel()
	for name, column := range map[string]string{
		"enum":   "CREATE TYPE st AS ENUM ('searching', 'active', 'pending_payment', 'ended', 'expired', 'cancelled')",
		"domain": "CREATE DOMAIN st AS text CHECK (VALUE IN ('searching', 'active', 'pending_payment', 'ended', 'expired', 'cancelled'))",
		"length": "CREATE DOMAIN st AS varchar(15) CHECK (VALUE <> 'completed')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, ctx := pgtest.Database(t), t.Context()
			w := world{DB: db, t: t, src: open(t, db.URL)}
			w.exec(column)
			w.exec("CREATE TABLE chat_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), mitra_id uuid, status st NOT NULL DEFAULT 'searching')")
			require.NoError(t, w.src.Migrate(ctx))
			id := w.mitra()
			session := w.session("searching", nil)
			_, _, err := w.src.Accept(ctx, session, id, 3)
			require.NoError(t, err)
			_, _, err = w.src.End(ctx, session, "completed")
			require.ErrorIs(t, err, availability.ErrStatus)
			require.Equal(t, 1, w.state(id).Sessions)
			s, _, err := w.src.End(ctx, session, "ended")
			require.NoError(t, err)
			require.Equal(t, "ended", s.Status)
			require.Zero(t, w.state(id).Sessions)
		})
	}
}

func TestTheListOfMitrasIsReadByAnIndexInEachOrder(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	w.exec("INSERT INTO mitras (id, display_name) SELECT gen_random_uuid(), 'name ' || i % 5000 FROM generate_series(1, 20000) i")
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras LIMIT 30")
	w.exec("ANALYZE")
	on := true
	all, err := w.src.List(ctx, postgres.Listing{Limit: 20000})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		postgres.Listing
		index string
	}{
		"by id":           {postgres.Listing{Limit: 100, After: all[10000].ID}, "mitras_pkey"},
		"by name":         {postgres.Listing{Limit: 100, ByName: true, After: all[10000].ID}, "availability_names"},
		"the first names": {postgres.Listing{Limit: 100, ByName: true}, "availability_names"},
		"who is online":   {postgres.Listing{Limit: 100, Online: &on}, "mitra_availability_online"},
	} {
		w.src.Close() // connections report what they did when they end
		w.Reset()
		require.Eventually(t, func() bool {
			return one[int](w, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") == 1
		}, patience, 5*time.Millisecond)
		w.exec("SELECT pg_stat_reset()")
		w.src = open(t, w.URL)
		used := func() int {
			return one[int](w, "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes WHERE indexrelname = '"+c.index+"'")
		}
		page, err := w.src.List(ctx, c.Listing)
		require.NoError(t, err, name)
		require.NotEmpty(t, page, name)
		w.src.Close()
		require.Eventually(t, func() bool { return used() > 0 }, patience, 5*time.Millisecond, name)
		require.Zero(t, one[int](w, "SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_user_tables WHERE relname = 'mitras'"), name)
	}
}
