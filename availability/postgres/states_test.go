package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

// feed reads on, and returns the ids of what it got.
func (w world) feed(since *availability.Cursor) (ids []string) {
	w.t.Helper()
	states, now, err := w.src.Feed(w.t.Context(), *since)
	require.NoError(w.t, err)
	for _, st := range states {
		ids = append(ids, st.ID)
	}
	*since = now
	return ids
}

func TestTheFeedSeesAChangeThatCommitsLate(t *testing.T) {
	t.Parallel()
	w, ctx := setupAlone(t), t.Context()
	early, late := w.mitra(), w.mitra()
	var at availability.Cursor
	require.Empty(t, w.feed(&at), "it begins now")
	require.Empty(t, w.feed(&at))

	long := w.begin()
	_, err := long.Exec(ctx, "UPDATE mitras SET is_active = false WHERE id = $1", late)
	require.NoError(t, err)
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", early)
	// From here on, a number below new cursors is not committed yet.
	require.Equal(t, []string{early}, w.feed(&at))
	require.Empty(t, w.feed(&at), "once, however long somebody is under way")
	require.NoError(t, long.Commit(ctx))
	require.Equal(t, []string{late}, w.feed(&at))
	require.Empty(t, w.feed(&at))
}

func TestStatesAreReadInPagesAndByIds(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	ids := w.mitras(5)
	slices.Sort(ids)
	var read []string
	for after := ""; ; after = read[len(read)-1] {
		page, err := w.src.Page(ctx, after, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 2)
		for _, st := range page {
			read = append(read, st.ID)
		}
	}
	require.Equal(t, ids, read)
	states, err := w.src.States(ctx, []string{ids[3], nobody, ids[1]})
	require.NoError(t, err)
	require.Len(t, states, 2)
}

func TestTheAvailableAreOnlineActiveSeenAndNotFullTheLeastBusyFirst(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	free, busy, full, silent, off, inactive := w.mitra(), w.mitra(), w.mitra(), w.mitra(), w.mitra(), w.mitra()
	for _, id := range []string{free, busy, full, silent, inactive} {
		_, err := w.src.SetOnline(ctx, id, true)
		require.NoError(t, err)
	}
	_, err := w.src.SetActive(ctx, inactive, false)
	require.NoError(t, err)
	w.exec("UPDATE mitra_online_status SET last_online_at = '2020-01-01', last_heartbeat_at = '2020-01-01' WHERE mitra_id = $1", silent)
	w.session("active", busy)
	w.session("active", full)
	w.session("pending_payment", full)

	ids := func(cutoff time.Time, limit int) (ids []string) {
		states, err := w.src.Available(ctx, cutoff, 2, limit)
		require.NoError(t, err)
		for _, st := range states {
			ids = append(ids, st.ID)
		}
		return ids
	}
	cutoff := time.Now().Add(-time.Hour)
	require.Equal(t, []string{free, busy}, ids(cutoff, 10))
	require.Equal(t, []string{free}, ids(cutoff, 1))
	require.Equal(t, []string{free, busy}, ids(cutoff, 0))
	require.ElementsMatch(t, []string{free, silent, busy}, ids(time.Time{}, 10))
	require.Equal(t, busy, ids(time.Time{}, 10)[2])
	n, err := w.src.CountOnline(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, n, "nobody who is not active")
	require.False(t, w.state(off).Online)
}

func TestVersionsThatAMirrorKnowsAreOutbid(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	behind, equal, above := w.mitra(), w.mitra(), w.mitra()
	w.exec("UPDATE mitra_availability SET version = 50 WHERE mitra_id = $1", above)
	var at availability.Cursor
	w.feed(&at)
	states, err := w.src.Outbid(ctx, []availability.Versioned{
		{ID: behind, Version: 40}, {ID: equal, Version: 1}, {ID: above, Version: 40}, {ID: nobody, Version: 7},
		{ID: "unknown", Version: 9},
	})
	require.NoError(t, err)
	versions := map[string]int64{}
	for _, st := range states {
		versions[st.ID] = st.Version
	}
	require.Equal(t, map[string]int64{behind: 41, equal: 2, above: 50, nobody: 8}, versions)
	require.False(t, w.state(nobody).Active)
	require.Subset(t, w.feed(&at), []string{behind, equal, nobody})
	w.requireTruth()
}

func TestAMitraThatIsDeletedAndCreatedAgainGoesOnWithItsVersions(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id := w.mitra()
	_, err := w.src.SetOnline(ctx, id, true)
	require.NoError(t, err)
	session := w.session("active", id)
	before := w.state(id)

	w.exec("DELETE FROM mitras WHERE id = $1", id)
	gone := w.state(id)
	require.Equal(t, availability.State{ID: id, Version: gone.Version}, gone)
	require.Greater(t, gone.Version, before.Version)
	require.True(t, one[bool](w, "SELECT mitra_id IS NULL FROM chat_sessions WHERE id = $1", session))
	w.requireTruth()

	w.exec("INSERT INTO mitras (id) VALUES ($1)", id)
	back := w.state(id)
	require.True(t, back.Active)
	require.False(t, back.Online)
	require.Greater(t, back.Version, gone.Version)
	w.requireTruth()
}
