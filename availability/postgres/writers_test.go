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

func TestEachStepOfASession(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	a, b, off := w.mitra(), w.mitra(), w.mitra()
	_, err := w.src.SetActive(ctx, off, false)
	require.NoError(t, err)
	id, other := w.session("searching", nil), w.session("searching", nil)
	type answer func() (availability.Session, []availability.State, error)
	accept := func(id, mitra string) answer {
		return func() (availability.Session, []availability.State, error) { return w.src.Accept(ctx, id, mitra, 1) }
	}
	reroute := func(mitra string) answer {
		return func() (availability.Session, []availability.State, error) { return w.src.Reroute(ctx, id, mitra, 1) }
	}
	extend := func(paid bool) answer {
		return func() (availability.Session, []availability.State, error) { return w.src.Extend(ctx, id, paid) }
	}
	end := func(status string) answer {
		return func() (availability.Session, []availability.State, error) { return w.src.End(ctx, id, status) }
	}
	for _, c := range []struct {
		name           string
		do             answer
		err            error
		status, holder string   // if it is done
		of             []string // whose states are returned
		changed        bool
		has            [2]int // sessions of a and b
	}{
		{"end what searches", end("cancelled"), availability.ErrTaken, "", "", nil, false, [2]int{}},
		{"reroute what searches", reroute(a), availability.ErrTaken, "", "", []string{a}, false, [2]int{}},
		{"extend what searches", extend(true), availability.ErrTaken, "", "", nil, false, [2]int{}},
		{"accept by one who may not work", accept(id, off), availability.ErrInactive, "", "", []string{off}, false, [2]int{}},
		{"accept", accept(id, a), nil, "active", a, []string{a}, true, [2]int{1, 0}},
		{"accept again", accept(id, a), nil, "active", a, []string{a}, false, [2]int{1, 0}},
		{"accept by another", accept(id, b), availability.ErrTaken, "", "", []string{a, b}, false, [2]int{1, 0}},
		{"accept without room", accept(other, a), availability.ErrFull, "", "", []string{a}, false, [2]int{1, 0}},
		{"nobody has asked for a payment", extend(true), nil, "active", a, []string{a}, false, [2]int{1, 0}},
		{"ask for a payment", extend(false), nil, "pending_payment", a, []string{a}, false, [2]int{1, 0}},
		{"ask again", extend(false), nil, "pending_payment", a, []string{a}, false, [2]int{1, 0}},
		{"it keeps its place while it waits", accept(other, a), availability.ErrFull, "", "", []string{a}, false, [2]int{1, 0}},
		{"reroute to one who may not work", reroute(off), availability.ErrInactive, "", "", []string{a, off}, false, [2]int{1, 0}},
		{"reroute", reroute(b), nil, "pending_payment", b, []string{a, b}, true, [2]int{0, 1}},
		{"reroute again", reroute(b), nil, "pending_payment", b, []string{b}, false, [2]int{0, 1}},
		{"another is full now", accept(other, a), nil, "active", a, []string{a}, true, [2]int{1, 1}},
		{"reroute without room", reroute(a), availability.ErrFull, "", "", []string{a, b}, false, [2]int{1, 1}},
		{"pay", extend(true), nil, "active", b, []string{b}, false, [2]int{1, 1}},
		{"an end that is none", end("pending_payment"), availability.ErrStatus, "", "", nil, false, [2]int{1, 1}},
		{"end", end("completed"), nil, "completed", b, []string{b}, true, [2]int{1, 0}},
		{"end again", end("completed"), nil, "completed", b, []string{b}, false, [2]int{1, 0}},
		{"end otherwise", end("cancelled"), availability.ErrTaken, "", "", []string{b}, false, [2]int{1, 0}},
		{"extend what is over", extend(false), availability.ErrTaken, "", "", []string{b}, false, [2]int{1, 0}},
		{"reroute what is over", reroute(b), availability.ErrTaken, "", "", []string{b}, false, [2]int{1, 0}},
	} {
		before := [2]availability.State{w.state(a), w.state(b)}
		got, states, err := c.do()
		require.ErrorIs(t, err, c.err, c.name)
		if c.err == nil {
			require.Equal(t, c.status+" "+c.holder, got.Status+" "+got.MitraID, c.name)
			require.Equal(t, c.status+c.holder, one[string](w, "SELECT status || mitra_id FROM chat_sessions WHERE id = $1", got.ID), c.name)
		}
		var want []availability.State
		for _, mitra := range c.of {
			want = append(want, w.state(mitra))
		}
		require.ElementsMatch(t, want, states, c.name)
		after := [2]availability.State{w.state(a), w.state(b)}
		require.Equal(t, c.has, [2]int{after[0].Sessions, after[1].Sessions}, c.name)
		require.Equal(t, c.changed, before != after, c.name)
	}
	w.requireTruth()
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
