package postgres_test

import (
	"testing"

	"github.com/rollcall-redis/rollcall/availability"
)

// A manual change by psql is a change like any other.
func TestStatesFollowTheTablesWhoeverChangesThem(t *testing.T) {
	w, _ := setup(t)
	a, b := w.mitra(), w.mitra()
	last := w.state(a)
	for _, step := range []struct {
		sql  string
		want availability.State // except id, version and sign of life
	}{
		{"UPDATE mitras SET is_active = false WHERE id = $1", availability.State{}},
		{"UPDATE mitras SET is_active = true WHERE id = $1", availability.State{Active: true}},
		{"INSERT INTO mitra_online_status (mitra_id, is_online) VALUES ($1, true)", availability.State{Active: true, Online: true}},
		{"UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", availability.State{Active: true}},
		{"INSERT INTO chat_sessions (mitra_id, status) VALUES ($1, 'active'), ($1, 'pending_payment'), ($1, 'completed'), ($1, 'active')",
			availability.State{Active: true, Sessions: 3}},
		{"DELETE FROM chat_sessions WHERE ctid = (SELECT ctid FROM chat_sessions WHERE mitra_id = $1 AND status = 'active' LIMIT 1)",
			availability.State{Active: true, Sessions: 2}},
		{"UPDATE chat_sessions SET status = 'expired' WHERE mitra_id = $1 AND status = 'pending_payment'", availability.State{Active: true, Sessions: 1}},
		{"UPDATE chat_sessions SET status = 'active' WHERE mitra_id = $1", availability.State{Active: true, Sessions: 3}},
		{"DELETE FROM chat_sessions WHERE mitra_id = $1", availability.State{Active: true}},
		{"WITH s AS (UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1) INSERT INTO chat_sessions (mitra_id, status) VALUES ($1, 'active')",
			availability.State{Active: true, Online: true, Sessions: 1}},
		{"DELETE FROM mitra_online_status WHERE mitra_id = $1", availability.State{Active: true, Sessions: 1}},
	} {
		w.exec(step.sql, a)
		st := w.state(a)
		w.Greater(st.Version, last.Version, step.sql)
		last = st
		st.ID, st.Version, st.Seen = "", 0, step.want.Seen
		w.Equal(step.want, st, step.sql)
	}
	w.exec("UPDATE chat_sessions SET mitra_id = $1", b)
	w.Zero(w.state(a).Sessions)
	w.Equal(1, w.state(b).Sessions)
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) VALUES ($1, true)", a)
	w.exec("UPDATE mitra_online_status SET mitra_id = $1", b)
	w.False(w.state(a).Online)
	w.True(w.state(b).Online)
	w.requireTruth()
}

func TestAStatementThatNamesIsOnlineTakesAVersionAlsoIfTheValueStays(t *testing.T) {
	w, _ := setup(t)
	ids := w.mitras(2)
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras")
	for sql, takes := range map[string]bool{
		"UPDATE mitra_online_status SET is_online = true":                                                                                         true,
		"UPDATE mitra_online_status SET is_online = is_online, updated_at = now()":                                                                true,
		"INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras ON CONFLICT (mitra_id) DO UPDATE SET is_online = true": true,
		// Of two updates in one statement, triggers for statements know what the first one named.
		"WITH second AS (UPDATE mitra_online_status SET is_online = true) UPDATE mitra_online_status SET updated_at = now() WHERE mitra_id IS NULL": true,
		"UPDATE mitra_online_status SET last_heartbeat_at = now(), updated_at = now()":                                                              false,
		"INSERT INTO mitra_online_status (mitra_id) SELECT id FROM mitras ON CONFLICT (mitra_id) DO UPDATE SET last_heartbeat_at = now()":           false,
		"UPDATE mitras SET is_active = true":       false,
		"UPDATE chat_sessions SET status = status": false,
	} {
		w.session("active", ids[0])
		for _, id := range ids {
			before := w.state(id).Version
			w.exec(sql)
			w.Equal(takes, w.state(id).Version > before, sql)
			w.True(w.state(id).Online)
		}
	}
	w.requireTruth()
}

func TestABulkEndWritesEachMitrasStateOnce(t *testing.T) {
	w, _ := setup(t)
	const mitras, sessions = 10, 10_000
	ids := w.mitras(mitras)
	w.exec("INSERT INTO chat_sessions (mitra_id, status) SELECT ($1::uuid[])[1 + i % $2], 'active' FROM generate_series(1, $3) i", ids, mitras, sessions)
	before := map[string]int64{}
	for _, id := range ids {
		before[id] = w.state(id).Version
		w.Equal(sessions/mitras, w.state(id).Sessions)
	}
	w.exec("UPDATE chat_sessions SET status = 'completed'")
	for _, id := range ids {
		w.Equal(before[id]+1, w.state(id).Version)
		w.Zero(w.state(id).Sessions)
	}
	w.requireTruth()
}

func TestTruncatedTablesAreCountedAnew(t *testing.T) {
	w, _ := setup(t)
	id := w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) VALUES ($1, true)", id)
	w.session("active", id)
	versions := []int64{w.state(id).Version}
	for _, sql := range []string{"TRUNCATE chat_sessions", "TRUNCATE mitra_online_status", "TRUNCATE mitras CASCADE"} {
		w.exec(sql)
		versions = append(versions, w.state(id).Version)
	}
	w.IsIncreasing(versions)
	w.Equal(availability.State{ID: id, Version: versions[3]}, w.state(id))
	w.requireTruth()
}

func TestASessionOfAMitraThatHasNoStateMakesOne(t *testing.T) {
	w, _ := setup(t)
	id := one[string](w, `WITH off AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true) AS c)
		INSERT INTO mitras (id) SELECT gen_random_uuid() FROM off RETURNING id::text`)
	w.Zero(one[int](w, "SELECT count(*) FROM mitra_availability"))
	w.session("active", id)
	w.Equal(availability.State{ID: id, Version: 1, Sessions: 1}, w.state(id))
	w.session("active", id)
	w.Equal(availability.State{ID: id, Version: 2, Sessions: 2}, w.state(id))
}

func TestARepairWaitsForAChangeThatIsUnderWay(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	w.exec("UPDATE mitra_availability SET is_online = true WHERE mitra_id = $1", id)
	tx := w.begin()
	w.did(tx.Exec(ctx, "INSERT INTO chat_sessions (mitra_id, status) VALUES ($1, 'active')", id))

	var repaired []availability.Repaired
	done := make(chan error)
	go func() {
		var err error
		repaired, err = w.Repair(ctx)
		done <- err
	}()
	w.awaitLocked()
	w.NoError(tx.Commit(ctx))
	w.NoError(<-done)
	w.Equal([]availability.Repaired{
		{ID: id, Was: "online t, active t, sessions 1", Became: "online f, active t, sessions 1"},
	}, repaired)
	w.requireTruth()
}

// The role has rights on the service's tables, and on nothing of ours.
func TestARoleThatMayChangeTheTablesAloneChangesTheStates(t *testing.T) {
	w, ctx := setup(t)
	app := w.Name + "_app"
	w.exec("CREATE ROLE " + app + " LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON mitras, mitra_online_status, mitra_online_logs, chat_sessions TO " + app)
	pool := w.connect(w.As(app))
	id := w.mitra()
	_, err := pool.Exec(ctx, "SELECT * FROM mitra_availability")
	w.ErrorContains(err, "permission denied")

	// It does not get in the way with tables of its own either.
	_, err = pool.Exec(ctx, "CREATE TEMP TABLE mitra_availability (LIKE public.mitra_availability_truth); CREATE TEMP TABLE mitras (id uuid)")
	w.ErrorContains(err, "permission denied")
	w.did(pool.Exec(ctx, "CREATE TEMP TABLE mitra_availability (mitra_id uuid PRIMARY KEY, is_online bool, is_active bool, active_sessions int, version bigint, changed_xid xid8)"))

	for _, sql := range []string{
		"INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras",
		"INSERT INTO chat_sessions (mitra_id, status) SELECT id, 'active' FROM mitras",
		"UPDATE mitras SET is_active = false",
		"UPDATE mitra_online_status SET is_online = true",
		"UPDATE chat_sessions SET status = 'completed'",
		"TRUNCATE chat_sessions",
		"DELETE FROM mitras",
		"INSERT INTO mitras (id) VALUES ('" + id + "')",
	} {
		before := w.state(id).Version
		_, err := pool.Exec(ctx, sql)
		w.NoError(err, sql)
		if sql != "TRUNCATE chat_sessions" { // there was no session to count
			w.Greater(w.state(id).Version, before, sql)
		}
		w.requireTruth()
	}
}
