package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

func lives(at availability.Cursor) []string { return []string{at.Life, at.Connection} }

// feedAgain reads on until the source answers: its connection may have ended.
func (w world) feedAgain(since *availability.Cursor) (ids []string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		states, now, err := w.src.Feed(w.t.Context(), *since)
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
			t.Parallel()
			w := setup(t)
			ids := w.mitras(3)
			slices.Sort(ids)
			var at availability.Cursor
			w.feed(&at)
			w.feed(&at)
			before := at
			w.exec(sql)
			require.Equal(t, ids, w.feedAgain(&at))
			require.NotEqual(t, lives(before), lives(at))
			after := at
			w.exec("SELECT pg_stat_reset_shared('bgwriter'), availability_recount()") // brings nothing
			w.feed(&at)
			require.Equal(t, lives(after), lives(at))
		})
	}
}

func TestAnOpenTransactionHasNoStateReadTwice(t *testing.T) {
	t.Parallel()
	w, ctx := setupAlone(t), t.Context()
	w.exec("INSERT INTO mitras SELECT gen_random_uuid() FROM generate_series(1, 500)")
	var at availability.Cursor
	w.feed(&at)
	open := w.begin()
	_, err := open.Exec(ctx, "CREATE TABLE anything (); SAVEPOINT s; UPDATE mitras SET is_active = false")
	require.NoError(t, err)
	_, err = open.Exec(ctx, "ROLLBACK TO s")
	require.NoError(t, err)
	w.exec("UPDATE mitras SET is_active = false")
	require.Len(t, w.feed(&at), 500)
	for range 5 {
		require.Empty(t, w.feed(&at))
	}
	_, err = open.Exec(ctx, "SAVEPOINT s; UPDATE mitras SET is_active = true; RELEASE s")
	require.NoError(t, err)
	require.NoError(t, open.Commit(ctx))
	require.Len(t, w.feed(&at), 500, "those of a savepoint, too")
	require.Empty(t, w.feed(&at))
}

func TestTheFeedWaitsForNoLockOfOtherTables(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	m := w.mitra()
	_, err := w.src.SetOnline(ctx, m, true)
	require.NoError(t, err)
	var at availability.Cursor
	w.feed(&at)
	tx := w.begin()
	_, err = tx.Exec(ctx, "LOCK TABLE app_config, mitra_online_status, mitra_online_logs IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", m)
	for range 2 {
		states, next, err := w.src.Feed(ctx, at)
		require.NoError(t, err)
		require.Equal(t, at, next, "it comes again with its last sign of life")
		require.Len(t, states, 1)
		require.False(t, states[0].Active)
		require.True(t, states[0].Online)
		require.Zero(t, states[0].Seen)
	}
	require.NoError(t, tx.Rollback(ctx))
	states, _, err := w.src.Feed(ctx, at)
	require.NoError(t, err)
	require.Len(t, states, 1)
	require.NotZero(t, states[0].Seen)
}
