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
	w, ctx := setup(t)
	id, role := w.mitra(), w.Name+"_guest"
	w.exec("CREATE ROLE " + role + " LOGIN")
	guest := w.connect(w.As(role))
	for function, columns := range map[string]string{
		"mitras": "id uuid, is_active boolean", "status": "mitra_id uuid, is_online boolean", "sessions": "mitra_id uuid, status text",
		"truncate": "id uuid", "sign_in": "mitra_id uuid, revoked_at timestamptz",
	} {
		table := "mine_" + function
		w.did(guest.Exec(ctx, "CREATE TEMP TABLE "+table+" ("+columns+")"))
		_, err := guest.Exec(ctx, "CREATE TRIGGER mine AFTER INSERT ON "+table+
			" FOR EACH STATEMENT EXECUTE FUNCTION availability_of_"+function+"()")
		var refused *pgconn.PgError
		w.ErrorAs(err, &refused, function)
		w.Equal("42501", refused.Code, function)
	}
	// Roles that may write to the tables need no rights on the functions.
	w.exec("GRANT SELECT, INSERT, UPDATE ON mitras, mitra_online_status, chat_sessions TO " + role)
	for _, sql := range []string{
		"UPDATE mitras SET is_active = true", "INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras",
		"UPDATE mitra_online_status SET is_online = true", "INSERT INTO chat_sessions (mitra_id, status) SELECT id, 'active' FROM mitras",
	} {
		_, err := guest.Exec(ctx, sql)
		w.NoError(err, sql)
	}
	w.Equal(1, w.state(id).Sessions)
	w.requireTruth()
}

func TestASignOfLifeThatIsNoMomentKeepsNobodyFromReadingStates(t *testing.T) {
	w, ctx := setupAlone(t)
	id, other := w.mitra(), w.mitra()
	for _, mitra := range []string{id, other} {
		w.did(w.SetOnline(ctx, mitra, true))
	}
	var at availability.Cursor
	w.feed(&at)
	for _, moment := range []string{"infinity", "-infinity", "12026-01-01", "4712-01-01 BC"} {
		w.exec("UPDATE mitra_online_status SET is_online = true, last_heartbeat_at = $2::text::timestamptz, last_online_at = NULL WHERE mitra_id = $1",
			id, moment)
		w.Equal([]string{id}, w.feed(&at), moment)
		w.Zero(w.state(id).Seen, moment)
		page, err := w.Page(ctx, "", 9)
		w.NoError(err)
		w.Len(page, 2)
		found, err := w.Available(ctx, time.Now().Add(-time.Hour), 3, 0)
		w.NoError(err)
		w.Len(found, 1, "what is no moment is no sign of life: %s", moment)
		st, flipped, err := w.AutoOffline(ctx, condemn(w.state(id)), time.Now().Add(-time.Hour), fine)
		w.NoError(err)
		w.Len(flipped, 1, moment)
		w.Len(st, 1)
		w.feed(&at)
	}
	w.requireTruth()
}

func TestARowThatNamesNoMitraIsLeftAlone(t *testing.T) {
	w, _ := former(t, `CREATE TABLE mitra_online_status (mitra_id uuid UNIQUE, is_online boolean NOT NULL);
		INSERT INTO mitra_online_status VALUES (NULL, true)`)
	id := w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) VALUES (NULL, true), ($1, true)", id)
	w.exec("UPDATE mitra_online_status SET is_online = false")
	w.exec("UPDATE mitra_online_status SET mitra_id = NULL WHERE mitra_id = $1", id)
	w.exec("DELETE FROM mitra_online_status WHERE mitra_id IS NULL")
	w.False(w.state(id).Online)
	w.requireTruth()
}

// CREATE UNIQUE INDEX CONCURRENTLY leaves one behind when it finds two rows of a mitra.
func TestAnIndexThatIsNotValidIsNotTakenForOneStatusAMitra(t *testing.T) {
	w, ctx := blank(t)
	w.exec("CREATE TABLE mitra_online_status (mitra_id uuid NOT NULL, is_online boolean NOT NULL)")
	w.exec("INSERT INTO mitra_online_status SELECT $1, true FROM generate_series(1, 2)", nobody)
	_, err := w.Exec(ctx, "CREATE UNIQUE INDEX CONCURRENTLY one ON mitra_online_status (mitra_id)")
	w.Error(err)
	w.ErrorContains(w.Migrate(ctx), "availability_one_status")
}

// A dump keeps the numbers of the transactions of the server that it comes from.
func TestStatesOfARestoreAreNotReturnedForEver(t *testing.T) {
	w, ctx := setupAlone(t)
	restored, changed := w.mitra(), w.mitra()
	w.exec("UPDATE mitra_availability SET changed_xid = '999999999999' WHERE mitra_id = $1", restored)
	var at availability.Cursor
	w.Empty(w.feed(&at), "it begins now")
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", changed)
	w.Equal([]string{changed}, w.feed(&at))
	w.Empty(w.feed(&at))
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", restored)
	w.Equal([]string{restored}, w.feed(&at))

	w.exec("UPDATE mitra_availability SET changed_xid = '999999999999' WHERE mitra_id = $1", restored)
	at.Life = "another"
	states, _, err := w.Feed(ctx, at)
	w.NoError(err)
	w.Len(states, 2, "of another server all is returned")
}

func TestAFrozenServerDoesNotKeepAFeedWaitingForEver(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db, ctx := server.Database(), t.Context()
	require.NoError(t, open(t, db.URL).Migrate(ctx))
	src := open(t, db.URL, postgres.Timeout(100*time.Millisecond))
	require.Eventually(t, func() bool { // it is connected, however slow this machine is
		_, _, feedErr := src.Feed(ctx, availability.Cursor{})
		_, err := src.CountOnline(ctx)
		return err == nil && feedErr == nil
	}, patience, time.Millisecond)
	server.Stop()
	defer server.Cont()
	_, _, err := src.Feed(ctx, availability.Cursor{})
	require.ErrorContains(t, err, "no answer within")
	_, err = src.Page(ctx, "", 1)
	require.ErrorContains(t, err, "no answer within")
	_, err = src.Repair(ctx)
	require.ErrorContains(t, err, "no answer within")
}

func TestTheFeedSeesWhatSubtransactionsAndPreparedTransactionsChange(t *testing.T) {
	w, ctx := setupAlone(t, "max_prepared_transactions=2")
	prepared, nested, later := w.mitra(), w.mitra(), w.mitra()
	var at availability.Cursor
	w.Empty(w.feed(&at))
	two := w.connect(w.URL)
	long := w.begin()
	off := "UPDATE mitras SET is_active = false WHERE id = '"
	w.did(two.Exec(ctx, "BEGIN; "+off+prepared+"'; PREPARE TRANSACTION 'x'"))
	w.did(long.Exec(ctx, "SELECT pg_current_xact_id(); SAVEPOINT a; "+off+nested+"'; SAVEPOINT b; ROLLBACK TO b; RELEASE a"))
	w.exec(off + later + "'")
	w.Equal([]string{later}, w.feed(&at))
	w.NoError(long.Commit(ctx))
	w.Equal([]string{nested}, w.feed(&at))
	w.NoError(two.Close(ctx))
	w.exec("COMMIT PREPARED 'x'")
	w.Equal([]string{prepared}, w.feed(&at))
	w.Empty(w.feed(&at))
}

func TestASessionMayMoveFromPartitionToPartition(t *testing.T) {
	w, ctx := former(t, `CREATE TABLE chat_sessions (id uuid DEFAULT gen_random_uuid(), mitra_id uuid, status text) PARTITION BY LIST (status);
		CREATE TABLE chat_sessions_waiting PARTITION OF chat_sessions FOR VALUES IN ('searching', 'pending_payment');
		CREATE TABLE chat_sessions_others PARTITION OF chat_sessions DEFAULT`)
	a, b, session := w.mitra(), w.mitra(), w.session("searching", nil)
	has := func(ofA, ofB int) {
		t.Helper()
		w.Equal([]int{ofA, ofB}, []int{w.state(a).Sessions, w.state(b).Sessions})
	}
	w.moved(w.Accept(ctx, session, a, 1))
	has(1, 0)
	w.moved(w.Extend(ctx, session, false))
	has(1, 0)
	w.moved(w.Reroute(ctx, session, b, 1))
	has(0, 1)
	w.exec("UPDATE chat_sessions SET status = 'active', mitra_id = $1", a)
	has(1, 0)
	w.moved(w.End(ctx, session, "completed"))
	has(0, 0)
	w.exec("UPDATE chat_sessions SET status = 'pending_payment'")
	has(1, 0)
	w.exec("DELETE FROM chat_sessions")
	has(0, 0)
	w.requireTruth()
}

func TestARepairWaitsForNobodyInACircle(t *testing.T) {
	w, ctx := setup(t)
	ids := w.mitras(2)
	slices.Sort(ids)
	first, last := ids[0], ids[1]
	w.exec("UPDATE mitra_availability SET active_sessions = 5 WHERE mitra_id = $1", first)
	w.exec("DELETE FROM mitra_availability WHERE mitra_id = $1", last)
	writer := w.begin()
	_, err := writer.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR NO KEY UPDATE", first) // as accept
	w.NoError(err)
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
	w.did(writer.Exec(ctx, "UPDATE mitras SET is_active = false WHERE id = $1", last))
	w.NoError(writer.Commit(ctx))
	w.NoError(<-repaired)
	w.requireTruth()
}
