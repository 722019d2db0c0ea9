package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

const nobody = "00000000-0000-4000-8000-000000000000"

func TestAMitraGoesOnlineAndOfflineWithALogRowForEachChange(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id := w.mitra()
	first := w.state(id)
	require.Equal(t, availability.State{ID: id, Version: 1, Active: true}, first)

	on, err := w.src.SetOnline(ctx, strings.ToUpper(id), true)
	require.NoError(t, err)
	require.True(t, on.Online)
	require.Equal(t, id, on.ID, "in lower case")
	require.Greater(t, on.Version, first.Version)
	require.WithinDuration(t, one[time.Time](w, "SELECT now()"), on.Seen, patience)
	require.Equal(t, on, w.state(id))

	since := one[time.Time](w, "SELECT last_online_at FROM mitra_online_status")
	again, err := w.src.SetOnline(ctx, id, true)
	require.NoError(t, err)
	require.Greater(t, again.Version, on.Version, "a sign of life takes a version")
	require.False(t, again.Seen.Before(on.Seen))
	require.Equal(t, since, one[time.Time](w, "SELECT last_online_at FROM mitra_online_status"))

	off, err := w.src.SetOnline(ctx, id, false)
	require.NoError(t, err)
	require.False(t, off.Online)
	require.Greater(t, off.Version, again.Version)
	same, err := w.src.SetOnline(ctx, id, false)
	require.NoError(t, err)
	require.Equal(t, off, same, "nothing has changed")
	require.Equal(t, "online,offline", one[string](w, "SELECT string_agg(status, ',' ORDER BY id) FROM mitra_online_logs WHERE mitra_id = $1", id))
	require.True(t, one[bool](w, "SELECT last_offline_at >= last_online_at FROM mitra_online_status"))
	w.requireTruth()
}

func TestWhoWasNeverOnlineGoesOfflineWithoutATrace(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.mitra()
	st, err := w.src.SetOnline(t.Context(), id, false)
	require.NoError(t, err)
	require.Equal(t, availability.State{ID: id, Version: 1, Active: true}, st)
	require.Zero(t, one[int](w, "SELECT (SELECT count(*) FROM mitra_online_status) + (SELECT count(*) FROM mitra_online_logs)"))
}

func TestADeactivatedMitraIsSignedOutAndCannotGoOnline(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id, other := w.mitra(), w.mitra()
	w.exec("INSERT INTO auth_sessions (mitra_id, revoked_at) VALUES ($1, NULL), ($1, NULL), ($1, '2020-01-01'), ($2, NULL)", id, other)
	_, err := w.src.SetOnline(ctx, id, true)
	require.NoError(t, err)

	st, err := w.src.SetActive(ctx, id, false)
	require.NoError(t, err)
	require.False(t, st.Active)
	require.True(t, st.Online, "it is what the mitra said last")
	require.Equal(t, 3, one[int](w, "SELECT count(revoked_at) FROM auth_sessions WHERE mitra_id = $1", id))
	require.Equal(t, 1, one[int](w, "SELECT count(*) FROM auth_sessions WHERE revoked_at = '2020-01-01'"), "revoked once")
	require.Zero(t, one[int](w, "SELECT count(revoked_at) FROM auth_sessions WHERE mitra_id = $1", other))

	refused, err := w.src.SetOnline(ctx, id, true)
	require.ErrorIs(t, err, availability.ErrInactive)
	require.Equal(t, st, refused)
	_, err = w.src.SetOnline(ctx, id, false)
	require.NoError(t, err)

	same, err := w.src.SetActive(ctx, id, true)
	require.NoError(t, err)
	again, err := w.src.SetActive(ctx, id, true)
	require.NoError(t, err)
	require.Equal(t, same, again)
	w.requireTruth()
}

func TestASessionIsAcceptedOnceReroutedAndEnded(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	a, b := w.mitra(), w.mitra()
	id := w.session("searching", nil)

	got, states, err := w.src.Accept(ctx, id, a, 1)
	require.NoError(t, err)
	require.Equal(t, availability.Session{ID: id, MitraID: a, Status: "active"}, got)
	require.Equal(t, []availability.State{w.state(a)}, states)
	require.Equal(t, 1, states[0].Sessions)

	again, unchanged, err := w.src.Accept(ctx, id, a, 1)
	require.NoError(t, err, "it has it")
	require.Equal(t, got, again)
	require.Equal(t, states, unchanged)
	_, _, err = w.src.Accept(ctx, id, b, 1)
	require.ErrorIs(t, err, availability.ErrTaken)
	_, full, err := w.src.Accept(ctx, w.session("searching", nil), a, 1)
	require.ErrorIs(t, err, availability.ErrFull)
	require.Equal(t, states, full)

	w.exec("UPDATE chat_sessions SET status = 'pending_payment' WHERE id = $1", id)
	require.Equal(t, states[0], w.state(a), "an extension takes no room, and gives none")

	moved, states, err := w.src.Reroute(ctx, id, b, 1)
	require.NoError(t, err)
	require.Equal(t, availability.Session{ID: id, MitraID: b, Status: "pending_payment"}, moved)
	require.ElementsMatch(t, []availability.State{w.state(a), w.state(b)}, states)
	require.Zero(t, w.state(a).Sessions)
	require.Equal(t, 1, w.state(b).Sessions)
	_, unchanged, err = w.src.Reroute(ctx, id, b, 1)
	require.NoError(t, err, "it has it")
	require.Equal(t, []availability.State{w.state(b)}, unchanged)

	_, _, err = w.src.Reroute(ctx, w.session("active", a), b, 1)
	require.ErrorIs(t, err, availability.ErrFull)
	require.Equal(t, 1, w.state(a).Sessions)

	ended, states, err := w.src.End(ctx, id, "completed")
	require.NoError(t, err)
	require.Equal(t, availability.Session{ID: id, MitraID: b, Status: "completed"}, ended)
	require.Equal(t, []availability.State{w.state(b)}, states)
	require.Zero(t, states[0].Sessions)
	_, unchanged, err = w.src.End(ctx, id, "completed")
	require.NoError(t, err)
	require.Equal(t, states, unchanged)
	_, _, err = w.src.End(ctx, id, "cancelled")
	require.ErrorIs(t, err, availability.ErrTaken)
	_, _, err = w.src.Reroute(ctx, id, a, 9)
	require.ErrorIs(t, err, availability.ErrTaken)
	w.requireTruth()
}

func TestAnExtensionLeavesTheStateAsItIs(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	mitra := w.mitra()
	id := w.session("active", mitra)
	before := w.state(mitra)
	require.Equal(t, 1, before.Sessions)
	for _, c := range []struct {
		paid bool
		want string
	}{
		{true, "active"}, // nobody has asked for a payment
		{false, "pending_payment"}, {false, "pending_payment"}, {true, "active"}, {true, "active"}, {false, "pending_payment"},
	} {
		got, states, err := w.src.Extend(ctx, id, c.paid)
		require.NoError(t, err)
		require.Equal(t, availability.Session{ID: id, MitraID: mitra, Status: c.want}, got)
		require.Equal(t, c.want, one[string](w, "SELECT status FROM chat_sessions WHERE id = $1", id))
		require.Equal(t, []availability.State{before}, states, "at the same version")
		require.Equal(t, before, w.state(mitra))
	}
	_, _, err := w.src.Accept(ctx, w.session("searching", nil), mitra, 1)
	require.ErrorIs(t, err, availability.ErrFull, "it takes its place while it waits")

	_, after, err := w.src.End(ctx, id, "expired")
	require.NoError(t, err, "nobody has paid")
	require.Zero(t, after[0].Sessions)
	for _, paid := range []bool{false, true} {
		_, states, err := w.src.Extend(ctx, id, paid)
		require.ErrorIs(t, err, availability.ErrTaken)
		require.Equal(t, after, states)
		_, _, err = w.src.Extend(ctx, w.session("searching", nil), paid)
		require.ErrorIs(t, err, availability.ErrTaken)
	}
	w.requireTruth()
}

func TestASessionThatSearchesIsNotEndedOrRerouted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.session("searching", nil)
	_, _, err := w.src.End(t.Context(), id, "cancelled")
	require.ErrorIs(t, err, availability.ErrTaken)
	_, _, err = w.src.Reroute(t.Context(), id, w.mitra(), 9)
	require.ErrorIs(t, err, availability.ErrTaken)
	for _, status := range []string{"", "searching", "active", "pending_payment"} {
		_, _, err = w.src.End(t.Context(), w.session("active", w.mitra()), status)
		require.ErrorContains(t, err, "ends no session")
	}
}

func TestAMitraThatIsNotActiveGetsNoSession(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id, busy := w.mitra(), w.mitra()
	st, err := w.src.SetActive(ctx, id, false)
	require.NoError(t, err)
	_, states, err := w.src.Accept(ctx, w.session("searching", nil), id, 3)
	require.ErrorIs(t, err, availability.ErrInactive)
	require.Equal(t, []availability.State{st}, states)
	_, _, err = w.src.Reroute(ctx, w.session("active", busy), id, 3)
	require.ErrorIs(t, err, availability.ErrInactive)
	require.Equal(t, 1, w.state(busy).Sessions)
}

func TestWhatIsNotThereIsNotFoundByAnyWriter(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id, session := w.mitra(), w.session("searching", nil)
	for _, bad := range []string{nobody, "", "x", "'; DROP TABLE mitras; --", strings.ReplaceAll(nobody, "-", "")} {
		_, err := w.src.SetOnline(ctx, bad, true)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, err = w.src.SetActive(ctx, bad, false)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.Accept(ctx, bad, id, 3)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.Accept(ctx, session, bad, 3)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.Reroute(ctx, bad, id, 3)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.Reroute(ctx, session, bad, 3)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.Extend(ctx, bad, false)
		require.ErrorIs(t, err, availability.ErrNotFound)
		_, _, err = w.src.End(ctx, bad, "completed")
		require.ErrorIs(t, err, availability.ErrNotFound)
		states, err := w.src.States(ctx, []string{bad})
		require.NoError(t, err)
		require.Empty(t, states)
	}
	require.Equal(t, 1, one[int](w, "SELECT count(*) FROM mitra_availability"))
}

func TestHeartbeatsAreStoredOnlyIfTheyAreNewer(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	old, newer, never, held := w.mitra(), w.mitra(), w.mitra(), w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras WHERE id <> $1", never)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	w.exec("UPDATE mitra_online_status SET last_heartbeat_at = $1 WHERE mitra_id = $2", at, newer)
	before := w.state(old).Version

	tx := w.begin()
	_, err := tx.Exec(ctx, "UPDATE mitra_online_status SET updated_at = now() WHERE mitra_id = $1", held)
	require.NoError(t, err)
	those := []availability.Heartbeat{
		{ID: old, At: at}, {ID: newer, At: at}, {ID: never, At: at}, {ID: held, At: at}, {ID: nobody, At: at}, {ID: "x", At: at},
	}
	n, err := w.src.MirrorHeartbeats(ctx, those)
	require.NoError(t, err)
	require.Equal(t, 1, n, "it waits for nobody")
	require.NoError(t, tx.Rollback(ctx))
	n, err = w.src.MirrorHeartbeats(ctx, those)
	require.NoError(t, err)
	require.Equal(t, 1, n, "what was held is stored the next time")

	for _, id := range []string{old, newer, held} {
		require.Equal(t, at, w.state(id).Seen)
	}
	require.Equal(t, before, w.state(old).Version, "a heartbeat takes no version")
}
