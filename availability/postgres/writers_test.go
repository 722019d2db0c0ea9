package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
)

const nobody = "00000000-0000-4000-8000-000000000000"

func TestAMitraGoesOnlineAndOfflineWithALogRowForEachChange(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	first := w.state(id)
	w.Equal(availability.State{ID: id, Version: 1, Active: true}, first)

	on, err := w.SetOnline(ctx, strings.ToUpper(id), true)
	w.NoError(err)
	w.True(on.Online)
	w.Equal(id, on.ID, "in lower case")
	w.Greater(on.Version, first.Version)
	w.WithinDuration(one[time.Time](w, "SELECT now()"), on.Seen, patience)
	w.Equal(on, w.state(id))

	since := one[time.Time](w, "SELECT last_online_at FROM mitra_online_status")
	again, err := w.SetOnline(ctx, id, true)
	w.NoError(err)
	w.Greater(again.Version, on.Version, "a sign of life takes a version")
	w.False(again.Seen.Before(on.Seen))
	w.Equal(since, one[time.Time](w, "SELECT last_online_at FROM mitra_online_status"))

	off, err := w.SetOnline(ctx, id, false)
	w.NoError(err)
	w.False(off.Online)
	w.Greater(off.Version, again.Version)
	same, err := w.SetOnline(ctx, id, false)
	w.NoError(err)
	w.Equal(off, same, "nothing has changed")
	w.Equal("online,offline", one[string](w, "SELECT string_agg(status, ',' ORDER BY id) FROM mitra_online_logs WHERE mitra_id = $1", id))
	w.True(one[bool](w, "SELECT last_offline_at >= last_online_at FROM mitra_online_status"))
	w.requireTruth()
}

func TestWhoWasNeverOnlineGoesOfflineWithoutATrace(t *testing.T) {
	w, _ := setup(t)
	id := w.mitra()
	st, err := w.SetOnline(t.Context(), id, false)
	w.NoError(err)
	w.Equal(availability.State{ID: id, Version: 1, Active: true}, st)
	w.Zero(one[int](w, "SELECT (SELECT count(*) FROM mitra_online_status) + (SELECT count(*) FROM mitra_online_logs)"))
}

func TestADeactivatedMitraIsSignedOutAndCannotGoOnline(t *testing.T) {
	w, ctx := setup(t)
	id, other := w.mitra(), w.mitra()
	w.exec("INSERT INTO auth_sessions (mitra_id, revoked_at) VALUES ($1, NULL), ($1, NULL), ($1, '2020-01-01'), ($2, NULL)", id, other)
	w.did(w.SetOnline(ctx, id, true))

	st, err := w.SetActive(ctx, id, false)
	w.NoError(err)
	w.False(st.Active)
	w.True(st.Online, "it is what the mitra said last")
	w.Equal(3, one[int](w, "SELECT count(revoked_at) FROM auth_sessions WHERE mitra_id = $1", id))
	w.Equal(1, one[int](w, "SELECT count(*) FROM auth_sessions WHERE revoked_at = '2020-01-01'"), "revoked once")
	w.Zero(one[int](w, "SELECT count(revoked_at) FROM auth_sessions WHERE mitra_id = $1", other))

	refused, err := w.SetOnline(ctx, id, true)
	w.ErrorIs(err, availability.ErrInactive)
	w.Equal(st, refused)
	w.did(w.SetOnline(ctx, id, false))

	same, err := w.SetActive(ctx, id, true)
	w.NoError(err)
	again, err := w.SetActive(ctx, id, true)
	w.NoError(err)
	w.Equal(same, again)
	w.requireTruth()
}

// sessionSteps are calls for two sessions, s and t, by three mitras, of whom c may not work: the
// error or the session's status and mitra then, whose states are returned, whether one has changed,
// and the sessions of a and b.
const sessionSteps = `
	end s cancelled       | taken               | -   | same    | 0 0
	reroute s a           | taken               | a   | same    | 0 0
	extend s paid         | taken               | -   | same    | 0 0
	accept s c            | inactive            | c   | same    | 0 0
	accept s a            | active a            | a   | changed | 1 0
	accept s a            | active a            | a   | same    | 1 0
	accept s b            | taken               | a b | same    | 1 0
	accept t a            | full                | a   | same    | 1 0
	extend s paid         | active a            | a   | same    | 1 0
	extend s unpaid       | pending_payment a   | a   | same    | 1 0
	extend s unpaid       | pending_payment a   | a   | same    | 1 0
	accept t a            | full                | a   | same    | 1 0
	reroute s c           | inactive            | a c | same    | 1 0
	reroute s b           | pending_payment b   | a b | changed | 0 1
	reroute s b           | pending_payment b   | b   | same    | 0 1
	accept t a            | active a            | a   | changed | 1 1
	reroute s a           | full                | a b | same    | 1 1
	extend s paid         | active b            | b   | same    | 1 1
	end s pending_payment | no status           | -   | same    | 1 1
	end s completed       | completed b         | b   | changed | 1 0
	end s completed       | completed b         | b   | same    | 1 0
	end s cancelled       | taken               | b   | same    | 1 0
	extend s unpaid       | taken               | b   | same    | 1 0
	reroute s b           | taken               | b   | same    | 1 0`

func TestEachStepOfASession(t *testing.T) {
	w, ctx := setup(t)
	id := map[string]string{
		"a": w.mitra(), "b": w.mitra(), "c": w.mitra(), "s": w.session("searching", nil), "t": w.session("searching", nil),
	}
	w.did(w.SetActive(ctx, id["c"], false))
	refusals := map[string]error{
		"taken": availability.ErrTaken, "full": availability.ErrFull, "inactive": availability.ErrInactive,
		"no status": availability.ErrStatus,
	}
	do := func(call []string) (availability.Session, []availability.State, error) {
		switch session, with := id[call[1]], call[2]; call[0] {
		case "accept":
			return w.Accept(ctx, session, id[with], 1)
		case "reroute":
			return w.Reroute(ctx, session, id[with], 1)
		case "extend":
			return w.Extend(ctx, session, with == "paid")
		default:
			return w.End(ctx, session, with)
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(sessionSteps), "\n") {
		column := strings.Split(line, "|")
		for i := range column {
			column[i] = strings.TrimSpace(column[i])
		}
		before := [2]availability.State{w.state(id["a"]), w.state(id["b"])}
		got, states, err := do(strings.Fields(column[0]))
		w.ErrorIs(err, refusals[column[1]], line)
		if err == nil {
			status, mitra, _ := strings.Cut(column[1], " ")
			w.Equal([]string{status, id[mitra]}, []string{got.Status, got.MitraID}, line)
			w.Equal(status+id[mitra], one[string](w, "SELECT status || mitra_id FROM chat_sessions WHERE id = $1", got.ID), line)
		}
		var want []availability.State
		for mitra := range strings.FieldsSeq(strings.Trim(column[2], "-")) {
			want = append(want, w.state(id[mitra]))
		}
		w.ElementsMatch(want, states, line)
		after := [2]availability.State{w.state(id["a"]), w.state(id["b"])}
		w.Equal(column[4], fmt.Sprint(after[0].Sessions, after[1].Sessions), line)
		w.Equal(column[3] == "changed", before != after, line)
	}
	w.requireTruth()
}

func TestWhatIsNotThereIsNotFoundByAnyWriter(t *testing.T) {
	w, ctx := setup(t)
	id, session := w.mitra(), w.session("searching", nil)
	for _, bad := range []string{nobody, "", "x", "'; DROP TABLE mitras; --", strings.ReplaceAll(nobody, "-", "")} {
		_, err := w.SetOnline(ctx, bad, true)
		w.ErrorIs(err, availability.ErrNotFound)
		_, err = w.SetActive(ctx, bad, false)
		w.ErrorIs(err, availability.ErrNotFound)
		notFound := w.refused(availability.ErrNotFound)
		notFound(w.Accept(ctx, bad, id, 3))
		notFound(w.Accept(ctx, session, bad, 3))
		notFound(w.Reroute(ctx, bad, id, 3))
		notFound(w.Reroute(ctx, session, bad, 3))
		notFound(w.Extend(ctx, bad, false))
		notFound(w.End(ctx, bad, "completed"))
		states, err := w.States(ctx, []string{bad})
		w.NoError(err)
		w.Empty(states)
	}
	w.Equal(1, one[int](w, "SELECT count(*) FROM mitra_availability"))
}

func TestHeartbeatsAreStoredOnlyIfTheyAreNewer(t *testing.T) {
	w, ctx := setup(t)
	old, newer, never, held := w.mitra(), w.mitra(), w.mitra(), w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras WHERE id <> $1", never)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	w.exec("UPDATE mitra_online_status SET last_heartbeat_at = $1 WHERE mitra_id = $2", at, newer)
	before := w.state(old).Version

	tx := w.begin()
	w.did(tx.Exec(ctx, "UPDATE mitra_online_status SET updated_at = now() WHERE mitra_id = $1", held))
	those := []availability.Heartbeat{
		{ID: old, At: at}, {ID: newer, At: at}, {ID: never, At: at}, {ID: held, At: at}, {ID: nobody, At: at}, {ID: "x", At: at},
	}
	n, err := w.MirrorHeartbeats(ctx, those)
	w.NoError(err)
	w.Equal(1, n, "it waits for nobody")
	w.NoError(tx.Rollback(ctx))
	n, err = w.MirrorHeartbeats(ctx, those)
	w.NoError(err)
	w.Equal(1, n, "what was held is stored the next time")

	for _, id := range []string{old, newer, held} {
		w.Equal(at, w.state(id).Seen)
	}
	w.Equal(before, w.state(old).Version, "a heartbeat takes no version")
}
