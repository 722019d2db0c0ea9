package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
)

func lives(at availability.Cursor) []string { return []string{at.Life, at.Connection} }

// feedAgain reads on until the source answers: its connection may have ended.
func (w world) feedAgain(since *availability.Cursor) (ids []string) {
	w.t.Helper()
	w.Eventually(func() bool {
		states, now, err := w.Feed(w.ctx, *since)
		if err != nil {
			return false
		}
		for _, st := range states {
			ids = append(ids, st.ID)
		}
		*since = now
		return true
	}, patience, 5*time.Millisecond)
	slices.Sort(ids)
	return ids
}

func TestWhateverMayBringOtherCommitsIsAnotherLife(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"the feed's connection ends": `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_current_snapshot%'`,
		"the states are restored in place":   "CREATE TEMP TABLE copy AS SELECT * FROM mitra_availability; TRUNCATE mitra_availability; INSERT INTO mitra_availability SELECT * FROM copy",
		"the states are another table's":     "CREATE TABLE other (LIKE mitra_availability INCLUDING ALL); INSERT INTO other SELECT * FROM mitra_availability; ALTER TABLE mitra_availability RENAME TO former; ALTER TABLE other RENAME TO mitra_availability",
		"a table is emptied":                 "TRUNCATE chat_sessions",
		"somebody put data back":             "SELECT availability_repair()",
		"a table gets rows that nobody told": "CREATE TABLE part (); ALTER TABLE part ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(), ADD COLUMN mitra_id uuid, ADD COLUMN status text NOT NULL DEFAULT 'x'; ALTER TABLE part INHERIT chat_sessions",
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := setup(t)
			ids := w.mitras(3)
			slices.Sort(ids)
			var at availability.Cursor
			w.feed(&at)
			w.feed(&at)
			before := at
			w.exec(sql)
			w.Equal(ids, w.feedAgain(&at))
			w.NotEqual(lives(before), lives(at))
			after := at
			w.exec("SELECT pg_stat_reset_shared('bgwriter'), availability_recount()") // brings nothing
			w.feed(&at)
			w.Equal(lives(after), lives(at))
		})
	}
}

func TestAnOpenTransactionHasNoStateReadTwice(t *testing.T) {
	w, ctx := setupAlone(t)
	w.exec("INSERT INTO mitras SELECT gen_random_uuid() FROM generate_series(1, 500)")
	var at availability.Cursor
	w.feed(&at)
	open := w.begin()
	w.did(open.Exec(ctx, "CREATE TABLE anything (); SAVEPOINT s; UPDATE mitras SET is_active = false"))
	w.did(open.Exec(ctx, "ROLLBACK TO s"))
	w.exec("UPDATE mitras SET is_active = false")
	w.Len(w.feed(&at), 500)
	for range 5 {
		w.Empty(w.feed(&at))
	}
	w.did(open.Exec(ctx, "SAVEPOINT s; UPDATE mitras SET is_active = true; RELEASE s"))
	w.NoError(open.Commit(ctx))
	w.Len(w.feed(&at), 500, "those of a savepoint, too")
	w.Empty(w.feed(&at))
}

func TestTheFeedWaitsForNoLockOfOtherTables(t *testing.T) {
	w, ctx := setup(t)
	m := w.mitra()
	w.did(w.SetOnline(ctx, m, true))
	var at availability.Cursor
	w.feed(&at)
	tx := w.begin()
	w.did(tx.Exec(ctx, "LOCK TABLE app_config, mitra_online_status, mitra_online_logs IN ACCESS EXCLUSIVE MODE"))
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", m)
	for range 2 {
		states, next, err := w.Feed(ctx, at)
		w.NoError(err)
		w.Equal(at, next, "it comes again with its last sign of life")
		w.Len(states, 1)
		w.False(states[0].Active)
		w.True(states[0].Online)
		w.Zero(states[0].Seen)
	}
	w.NoError(tx.Rollback(ctx))
	states, _, err := w.Feed(ctx, at)
	w.NoError(err)
	w.Len(states, 1)
	w.NotZero(states[0].Seen)
}
