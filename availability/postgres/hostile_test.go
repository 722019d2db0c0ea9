package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// A trigger runs with the rights of its function's owner, and could read any table it is created
// on.
func TestNobodyWritesStatesThroughATriggerOnATableOfTheirOwn(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id, role := w.mitra(), w.Name+"_guest"
	w.exec("CREATE ROLE " + role + " LOGIN")
	guest := w.connect(w.As(role))
	for function, columns := range map[string]string{
		"mitras": "id uuid, is_active boolean", "status": "mitra_id uuid, is_online boolean", "sessions": "mitra_id uuid, status text",
		"truncate": "id uuid", "sign_in": "mitra_id uuid, revoked_at timestamptz",
	} {
		table := "mine_" + function
		_, err := guest.Exec(ctx, "CREATE TEMP TABLE "+table+" ("+columns+")")
		require.NoError(t, err)
		_, err = guest.Exec(ctx, "CREATE TRIGGER mine AFTER INSERT ON "+table+
			" FOR EACH STATEMENT EXECUTE FUNCTION availability_of_"+function+"()")
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, function)
		require.Equal(t, "42501", refused.Code, function)
	}
	// Roles that may write to the tables need no rights on the functions.
	w.exec("GRANT SELECT, INSERT, UPDATE ON mitras, mitra_online_status, chat_sessions TO " + role)
	for _, sql := range []string{
		"UPDATE mitras SET is_active = true", "INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras",
		"UPDATE mitra_online_status SET is_online = true", "INSERT INTO chat_sessions (mitra_id, status) SELECT id, 'active' FROM mitras",
	} {
		_, err := guest.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	require.Equal(t, 1, w.state(id).Sessions)
	w.requireTruth()
}

func TestASignOfLifeThatIsNoMomentKeepsNobodyFromReadingStates(t *testing.T) {
	t.Parallel()
	w, ctx := setupAlone(t), t.Context()
	id, other := w.mitra(), w.mitra()
	for _, mitra := range []string{id, other} {
		_, err := w.src.SetOnline(ctx, mitra, true)
		require.NoError(t, err)
	}
	var at availability.Cursor
	w.feed(&at)
	for _, moment := range []string{"infinity", "-infinity", "12026-01-01", "4712-01-01 BC"} {
		w.exec("UPDATE mitra_online_status SET is_online = true, last_heartbeat_at = $2::text::timestamptz, last_online_at = NULL WHERE mitra_id = $1",
			id, moment)
		require.Equal(t, []string{id}, w.feed(&at), moment)
		require.Zero(t, w.state(id).Seen, moment)
		page, err := w.src.Page(ctx, "", 9)
		require.NoError(t, err)
		require.Len(t, page, 2)
		found, err := w.src.Available(ctx, time.Now().Add(-time.Hour), 3, 0)
		require.NoError(t, err)
		require.Len(t, found, 1, "what is no moment is no sign of life: %s", moment)
		st, flipped, err := w.src.AutoOffline(ctx, condemn(w.state(id)), time.Now().Add(-time.Hour), fine)
		require.NoError(t, err)
		require.Len(t, flipped, 1, moment)
		require.Len(t, st, 1)
		w.feed(&at)
	}
	w.requireTruth()
}

func TestARowThatNamesNoMitraIsLeftAlone(t *testing.T) {
	t.Parallel()
	db, ctx := pgtest.Database(t), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	w.exec("CREATE TABLE mitra_online_status (mitra_id uuid UNIQUE, is_online boolean NOT NULL)")
	w.exec("INSERT INTO mitra_online_status VALUES (NULL, true)")
	require.NoError(t, w.src.Migrate(ctx))
	id := w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) VALUES (NULL, true), ($1, true)", id)
	w.exec("UPDATE mitra_online_status SET is_online = false")
	w.exec("UPDATE mitra_online_status SET mitra_id = NULL WHERE mitra_id = $1", id)
	w.exec("DELETE FROM mitra_online_status WHERE mitra_id IS NULL")
	require.False(t, w.state(id).Online)
	w.requireTruth()
}

// CREATE UNIQUE INDEX CONCURRENTLY leaves one behind when it finds two rows of a mitra.
func TestAnIndexThatIsNotValidIsNotTakenForOneStatusAMitra(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	w := world{DB: db, t: t, src: open(t, db.URL)}
	w.exec("CREATE TABLE mitra_online_status (mitra_id uuid NOT NULL, is_online boolean NOT NULL)")
	w.exec("INSERT INTO mitra_online_status SELECT $1, true FROM generate_series(1, 2)", nobody)
	_, err := w.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY one ON mitra_online_status (mitra_id)")
	require.Error(t, err)
	require.ErrorContains(t, w.src.Migrate(t.Context()), "availability_one_status")
}

// A dump keeps the numbers of the transactions of the server that it comes from.
func TestStatesOfARestoreAreNotReturnedForEver(t *testing.T) {
	t.Parallel()
	w, ctx := setupAlone(t), t.Context()
	restored, changed := w.mitra(), w.mitra()
	w.exec("UPDATE mitra_availability SET changed_xid = '999999999999' WHERE mitra_id = $1", restored)
	var at availability.Cursor
	require.Empty(t, w.feed(&at), "it begins now")
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", changed)
	require.Equal(t, []string{changed}, w.feed(&at))
	require.Empty(t, w.feed(&at))
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", restored)
	require.Equal(t, []string{restored}, w.feed(&at))

	w.exec("UPDATE mitra_availability SET changed_xid = '999999999999' WHERE mitra_id = $1", restored)
	at.Life = "another"
	states, _, err := w.src.Feed(ctx, at)
	require.NoError(t, err)
	require.Len(t, states, 2, "of another server all is returned")
}

func TestAFrozenServerDoesNotKeepAFeedWaitingForEver(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db, ctx := server.Database(), t.Context()
	require.NoError(t, open(t, db.URL).Migrate(ctx))
	src, err := postgres.Open(ctx, db.URL, postgres.Timeout(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(src.Close)
	require.Eventually(t, func() bool { // it is connected, however slow this machine is
		_, _, feedErr := src.Feed(ctx, availability.Cursor{})
		_, err := src.CountOnline(ctx)
		return err == nil && feedErr == nil
	}, patience, time.Millisecond)
	server.Stop()
	defer server.Cont()
	_, _, err = src.Feed(ctx, availability.Cursor{})
	require.ErrorContains(t, err, "no answer within")
	_, err = src.Page(ctx, "", 1)
	require.ErrorContains(t, err, "no answer within")
	_, err = src.Repair(ctx)
	require.ErrorContains(t, err, "no answer within")
}

func TestTheFeedSeesWhatSubtransactionsAndPreparedTransactionsChange(t *testing.T) {
	t.Parallel()
	db, ctx := pgtest.Start(t, "autovacuum=off", "max_prepared_transactions=2").Database(), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	require.NoError(t, w.src.Migrate(ctx))
	prepared, nested, later := w.mitra(), w.mitra(), w.mitra()
	var at availability.Cursor
	require.Empty(t, w.feed(&at))
	two := w.connect(db.URL)
	long := w.begin()
	off := "UPDATE mitras SET is_active = false WHERE id = '"
	_, err := two.Exec(ctx, "BEGIN; "+off+prepared+"'; PREPARE TRANSACTION 'x'")
	require.NoError(t, err)
	_, err = long.Exec(ctx, "SELECT pg_current_xact_id(); SAVEPOINT a; "+off+nested+"'; SAVEPOINT b; ROLLBACK TO b; RELEASE a")
	require.NoError(t, err)
	w.exec(off + later + "'")
	require.Equal(t, []string{later}, w.feed(&at))
	require.NoError(t, long.Commit(ctx))
	require.Equal(t, []string{nested}, w.feed(&at))
	require.NoError(t, two.Close(ctx))
	w.exec("COMMIT PREPARED 'x'")
	require.Equal(t, []string{prepared}, w.feed(&at))
	require.Empty(t, w.feed(&at))
}

func TestASessionMayMoveFromPartitionToPartition(t *testing.T) {
	t.Parallel()
	db, ctx := pgtest.Database(t), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	w.exec(`CREATE TABLE chat_sessions (id uuid DEFAULT gen_random_uuid(), mitra_id uuid, status text) PARTITION BY LIST (status);
		CREATE TABLE chat_sessions_waiting PARTITION OF chat_sessions FOR VALUES IN ('searching', 'pending_payment');
		CREATE TABLE chat_sessions_others PARTITION OF chat_sessions DEFAULT`)
	require.NoError(t, w.src.Migrate(ctx))
	a, b, session := w.mitra(), w.mitra(), w.session("searching", nil)
	for _, step := range []struct {
		do   func() error
		a, b int
	}{
		{func() error { _, _, err := w.src.Accept(ctx, session, a, 1); return err }, 1, 0},
		{func() error { _, _, err := w.src.Extend(ctx, session, false); return err }, 1, 0},
		{func() error { _, _, err := w.src.Reroute(ctx, session, b, 1); return err }, 0, 1},
		{func() error {
			_, err := w.Exec(ctx, "UPDATE chat_sessions SET status = 'active', mitra_id = $1", a)
			return err
		}, 1, 0},
		{func() error { _, _, err := w.src.End(ctx, session, "completed"); return err }, 0, 0},
		{func() error { _, err := w.Exec(ctx, "UPDATE chat_sessions SET status = 'pending_payment'"); return err }, 1, 0},
		{func() error { _, err := w.Exec(ctx, "DELETE FROM chat_sessions"); return err }, 0, 0},
	} {
		require.NoError(t, step.do())
		require.Equal(t, step.a, w.state(a).Sessions)
		require.Equal(t, step.b, w.state(b).Sessions)
	}
	w.requireTruth()
}

func TestARepairWaitsForNobodyInACircle(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	ids := w.mitras(2)
	slices.Sort(ids)
	first, last := ids[0], ids[1]
	w.exec("UPDATE mitra_availability SET active_sessions = 5 WHERE mitra_id = $1", first)
	w.exec("DELETE FROM mitra_availability WHERE mitra_id = $1", last)
	writer := w.begin()
	_, err := writer.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR NO KEY UPDATE", first) // as accept
	require.NoError(t, err)
	repaired := make(chan error, 1)
	go func() {
		rows, err := w.Query(ctx, "SELECT availability_repair()") // tried once
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		repaired <- err
	}()
	w.awaitLocked()
	_, err = writer.Exec(ctx, "UPDATE mitras SET is_active = false WHERE id = $1", last)
	require.NoError(t, err)
	require.NoError(t, writer.Commit(ctx))
	require.NoError(t, <-repaired)
	w.requireTruth()
}
