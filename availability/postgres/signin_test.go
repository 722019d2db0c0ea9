package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

// signIn begins one: it sees an active mitra, and inserts its row.
func (w world) signIn(id string) pgx.Tx {
	w.t.Helper()
	tx := w.begin()
	var active bool
	w.NoError(tx.QueryRow(w.ctx, "SELECT is_active FROM mitras WHERE id = $1", id).Scan(&active))
	w.True(active)
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
	w, ctx := setup(t)
	deactivate := map[string]func(id string){
		"by the writer": func(id string) {
			w.did(w.SetActive(ctx, id, false))
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
		w.NoError(early.Commit(ctx), name)
		w.NoError(late.Commit(ctx), name)
		w.Zero(w.signedIn(id), name)
		w.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
		w.exec("UPDATE auth_sessions SET revoked_at = NULL WHERE mitra_id = $1", id)
		w.Zero(w.signedIn(id), "%s: who is deactivated does not sign in", name)
		w.Equal(3, one[int](w, "SELECT count(*) FROM auth_sessions WHERE mitra_id = $1", id))

		w.did(w.SetActive(ctx, id, true))
		w.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
		w.Equal(1, w.signedIn(id), "%s: active again", name)
	}
	w.exec("INSERT INTO auth_sessions (mitra_id) VALUES (NULL)") // a customer's
	w.Equal(1, one[int](w, "SELECT count(*) FROM auth_sessions WHERE mitra_id IS NULL AND revoked_at IS NULL"))
}

func TestADeactivationThatIsNotCommittedYetIsWaitedForByASignIn(t *testing.T) {
	w, ctx := setup(t)
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		id := w.mitra()
		login := w.signIn(id)
		insertSignIn(t, login, id)
		off := w.begin()
		w.did(off.Exec(ctx, "SELECT availability_set_active($1, false)", id))
		committed := make(chan error, 1)
		go func() { committed <- login.Commit(ctx) }()
		w.awaitLocked()
		w.did(off.Exec(ctx, end))
		w.NoError(<-committed)
		w.Equal(end == "ROLLBACK", w.signedIn(id) == 1, end)
		_ = off.Rollback(context.Background()) // it is over
	}
}

func TestAMomentWithoutTimeZoneIsUTCAlsoWhereASignInIsRevoked(t *testing.T) {
	w, _ := former(t, "CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamp)")
	id := w.mitra()
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", id)
	w.exec("SET timezone = 'Asia/Jakarta'; INSERT INTO auth_sessions VALUES ('t', '" + id + "', NULL)")
	w.Less(one[float64](w, "SELECT abs(extract(epoch FROM (now() AT TIME ZONE 'UTC') - revoked_at))::float8 FROM auth_sessions"), patience.Seconds())
}

func TestASignInOfAMitraThatNobodyKnowsIsLeftAlone(t *testing.T) {
	w, _ := former(t, "CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamptz)")
	w.exec("INSERT INTO auth_sessions VALUES ('t', $1, NULL)", nobody)
	w.Equal(1, w.signedIn(nobody))
}

// Without the right nobody could sign in any more.
func TestAMigrationWhoseRoleCannotRevokeSignInsIsRefused(t *testing.T) {
	w, ctx := blank(t)
	role := w.Name + "_maker"
	w.exec(`CREATE TABLE mitras (id uuid PRIMARY KEY, is_active boolean, display_name text);
		CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamptz);
		CREATE INDEX availability_names ON mitras ((coalesce(display_name::text, '')), id)`)
	w.exec("CREATE ROLE " + role + " LOGIN; GRANT CREATE ON SCHEMA public TO " + role +
		"; GRANT SELECT, REFERENCES, TRIGGER ON mitras, auth_sessions TO " + role)
	maker := open(t, w.As(role))
	w.ErrorContains(maker.Migrate(ctx), "needs the right to UPDATE mitras and auth_sessions")
	w.exec("GRANT UPDATE ON mitras, auth_sessions TO " + role)
	w.NoError(maker.Migrate(ctx))
	w.NoError(maker.Check(ctx))
	w.exec("INSERT INTO mitras VALUES ($1, false)", nobody)
	w.exec("INSERT INTO auth_sessions VALUES ('t', $1, NULL)", nobody)
	w.Zero(w.signedIn(nobody))
	w.exec("ALTER TABLE auth_sessions DISABLE TRIGGER availability_sign_in")
	w.ErrorContains(maker.Check(ctx), "trigger availability_sign_in on auth_sessions")
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
			w, ctx := former(t, column+`;
				CREATE TABLE chat_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), mitra_id uuid, status st NOT NULL DEFAULT 'searching')`)
			id := w.mitra()
			session := w.session("searching", nil)
			w.moved(w.Accept(ctx, session, id, 3))
			w.refused(availability.ErrStatus)(w.End(ctx, session, "completed"))
			w.Equal(1, w.state(id).Sessions)
			s, _, err := w.End(ctx, session, "ended")
			w.NoError(err)
			w.Equal("ended", s.Status)
			w.Zero(w.state(id).Sessions)
		})
	}
}

func TestTheListOfMitrasIsReadByAnIndexInEachOrder(t *testing.T) {
	w, ctx := setup(t)
	w.exec("INSERT INTO mitras (id, display_name) SELECT gen_random_uuid(), 'name ' || i % 5000 FROM generate_series(1, 20000) i")
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras LIMIT 30")
	w.exec("ANALYZE")
	on := true
	all, err := w.List(ctx, postgres.Listing{Limit: 20000})
	w.NoError(err)
	for name, c := range map[string]struct {
		postgres.Listing
		index string
	}{
		"by id":           {postgres.Listing{Limit: 100, After: all[10000].ID}, "mitras_pkey"},
		"by name":         {postgres.Listing{Limit: 100, ByName: true, After: all[10000].ID}, "availability_names"},
		"the first names": {postgres.Listing{Limit: 100, ByName: true}, "availability_names"},
		"who is online":   {postgres.Listing{Limit: 100, Online: &on}, "mitra_availability_online"},
	} {
		w.Close() // connections report what they did when they end
		w.Reset()
		w.Eventually(func() bool {
			return one[int](w, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") == 1
		}, patience, 5*time.Millisecond)
		w.exec("SELECT pg_stat_reset()")
		w.Source = open(t, w.URL)
		used := func() int {
			return one[int](w, "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes WHERE indexrelname = '"+c.index+"'")
		}
		page, err := w.List(ctx, c.Listing)
		w.NoError(err, name)
		w.NotEmpty(page, name)
		w.Close()
		w.Eventually(func() bool { return used() > 0 }, patience, 5*time.Millisecond, name)
		w.Zero(one[int](w, "SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_user_tables WHERE relname = 'mitras'"), name)
	}
}
