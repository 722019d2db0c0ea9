package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
)

// feed reads on, and returns the ids of what it got.
func (w world) feed(since *availability.Cursor) (ids []string) {
	w.t.Helper()
	states, now, err := w.Feed(w.ctx, *since)
	w.NoError(err)
	for _, st := range states {
		ids = append(ids, st.ID)
	}
	*since = now
	return ids
}

func TestTheFeedSeesAChangeThatCommitsLate(t *testing.T) {
	w, ctx := setupAlone(t)
	early, late := w.mitra(), w.mitra()
	var at availability.Cursor
	w.Empty(w.feed(&at), "it begins now")
	w.Empty(w.feed(&at))

	long := w.begin()
	w.did(long.Exec(ctx, "UPDATE mitras SET is_active = false WHERE id = $1", late))
	w.exec("UPDATE mitras SET is_active = false WHERE id = $1", early)
	// From here on, a number below new cursors is not committed yet.
	w.Equal([]string{early}, w.feed(&at))
	w.Empty(w.feed(&at), "once, however long somebody is under way")
	w.NoError(long.Commit(ctx))
	w.Equal([]string{late}, w.feed(&at))
	w.Empty(w.feed(&at))
}

func TestStatesAreReadInPagesAndByIds(t *testing.T) {
	w, ctx := setup(t)
	ids := w.mitras(5)
	slices.Sort(ids)
	var read []string
	for after := ""; ; after = read[len(read)-1] {
		page, err := w.Page(ctx, after, 2)
		w.NoError(err)
		if len(page) == 0 {
			break
		}
		w.LessOrEqual(len(page), 2)
		for _, st := range page {
			read = append(read, st.ID)
		}
	}
	w.Equal(ids, read)
	states, err := w.States(ctx, []string{ids[3], nobody, ids[1]})
	w.NoError(err)
	w.Len(states, 2)
}

func TestTheAvailableAreOnlineActiveSeenAndNotFullTheLeastBusyFirst(t *testing.T) {
	w, ctx := setup(t)
	free, busy, full, silent, off, inactive := w.mitra(), w.mitra(), w.mitra(), w.mitra(), w.mitra(), w.mitra()
	for _, id := range []string{free, busy, full, silent, inactive} {
		w.did(w.SetOnline(ctx, id, true))
	}
	w.did(w.SetActive(ctx, inactive, false))
	w.exec("UPDATE mitra_online_status SET last_online_at = '2020-01-01', last_heartbeat_at = '2020-01-01' WHERE mitra_id = $1", silent)
	w.session("active", busy)
	w.session("active", full)
	w.session("pending_payment", full)

	ids := func(cutoff time.Time, limit int) (ids []string) {
		states, err := w.Available(ctx, cutoff, 2, limit)
		w.NoError(err)
		for _, st := range states {
			ids = append(ids, st.ID)
		}
		return ids
	}
	cutoff := time.Now().Add(-time.Hour)
	w.Equal([]string{free, busy}, ids(cutoff, 10))
	w.Equal([]string{free}, ids(cutoff, 1))
	w.Equal([]string{free, busy}, ids(cutoff, 0))
	w.ElementsMatch([]string{free, silent, busy}, ids(time.Time{}, 10))
	w.Equal(busy, ids(time.Time{}, 10)[2])
	n, err := w.CountOnline(ctx)
	w.NoError(err)
	w.Equal(4, n, "nobody who is not active")
	w.False(w.state(off).Online)
}

func TestVersionsThatAMirrorKnowsAreOutbid(t *testing.T) {
	w, ctx := setup(t)
	behind, equal, above := w.mitra(), w.mitra(), w.mitra()
	w.exec("UPDATE mitra_availability SET version = 50 WHERE mitra_id = $1", above)
	var at availability.Cursor
	w.feed(&at)
	states, err := w.Outbid(ctx, []availability.Versioned{
		{ID: behind, Version: 40}, {ID: equal, Version: 1}, {ID: above, Version: 40}, {ID: nobody, Version: 7},
		{ID: "unknown", Version: 9},
	})
	w.NoError(err)
	versions := map[string]int64{}
	for _, st := range states {
		versions[st.ID] = st.Version
	}
	w.Equal(map[string]int64{behind: 41, equal: 2, above: 50, nobody: 8}, versions)
	w.False(w.state(nobody).Active)
	w.Subset(w.feed(&at), []string{behind, equal, nobody})
	w.requireTruth()
}

func TestAMitraThatIsDeletedAndCreatedAgainGoesOnWithItsVersions(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	w.did(w.SetOnline(ctx, id, true))
	session := w.session("active", id)
	before := w.state(id)

	w.exec("DELETE FROM mitras WHERE id = $1", id)
	gone := w.state(id)
	w.Equal(availability.State{ID: id, Version: gone.Version}, gone)
	w.Greater(gone.Version, before.Version)
	w.True(one[bool](w, "SELECT mitra_id IS NULL FROM chat_sessions WHERE id = $1", session))
	w.requireTruth()

	w.exec("INSERT INTO mitras (id) VALUES ($1)", id)
	back := w.state(id)
	w.True(back.Active)
	w.False(back.Online)
	w.Greater(back.Version, gone.Version)
	w.requireTruth()
}
