package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
)

func TestAHeartbeatAtTheSourceIsOfItsOwnClockAndTakesAVersion(t *testing.T) {
	w, ctx := setup(t)
	for _, last := range []string{"NULL", "'2020-01-01'", "'infinity'", "'-infinity'", "'2999-01-01'"} {
		m := w.online(before)
		w.exec("UPDATE mitra_online_status SET last_heartbeat_at = " + last + ", last_online_at = NULL WHERE mitra_id = '" + m.ID + "'")
		begun := one[time.Time](w, "SELECT date_trunc('milliseconds', clock_timestamp())")
		st, err := w.Beat(ctx, m.ID)
		w.NoError(err)
		w.False(st.Seen.Before(begun), last)
		w.False(st.Seen.After(one[time.Time](w, "SELECT clock_timestamp()")), last)
		w.Equal(m.Version+1, st.Version)
		w.Equal(st, w.state(m.ID))
	}
	ahead := w.online(before)
	w.exec("UPDATE mitra_online_status SET last_heartbeat_at = now() + interval '23 hours' WHERE mitra_id = $1", ahead.ID)
	st, err := w.Beat(ctx, ahead.ID)
	w.NoError(err)
	w.Greater(time.Until(st.Seen), 22*time.Hour, "one of a time to come counts until then")
	w.requireTruth()
}

func TestAHeartbeatAtTheSourceIsRefusedByName(t *testing.T) {
	w, ctx := setup(t)
	never, off, inactive := w.mitra(), w.online(before), w.online(before)
	w.did(w.SetOnline(ctx, off.ID, false))
	w.did(w.SetActive(ctx, inactive.ID, false))
	for id, want := range map[string]error{
		nobody: availability.ErrNotFound, "x": availability.ErrNotFound, never: availability.ErrNotOnline,
		off.ID: availability.ErrNotOnline, inactive.ID: availability.ErrInactive,
	} {
		_, err := w.Beat(ctx, id)
		w.ErrorIs(err, want)
	}
}

func TestAHeartbeatAtTheSourceIsNeverOverruledByAnAutoOffline(t *testing.T) {
	w, ctx := setup(t)
	m := w.online(before)
	w.did(w.Beat(ctx, m.ID))
	ahead := time.Now().Add(time.Hour) // a cutoff of another clock
	_, flipped, err := w.AutoOffline(ctx, condemn(m), ahead, fine)
	w.NoError(err)
	w.Empty(flipped, "the version is another")

	// One that comes while the auto-offline is about to commit waits for what it decides.
	for _, c := range []struct {
		confirm, beat error
	}{{nil, availability.ErrNotOnline}, {errNo, nil}} {
		m := w.online(before)
		beaten := make(chan error, 1)
		_, _, err := w.AutoOffline(ctx, condemn(m), cutoff, func() error {
			go func() {
				_, err := w.Beat(ctx, m.ID)
				beaten <- err
			}()
			w.awaitLocked()
			return c.confirm
		})
		w.ErrorIs(err, c.confirm)
		w.ErrorIs(<-beaten, c.beat)
		w.Equal(c.confirm != nil, w.state(m.ID).Online)
	}
}

func TestAJudgementIsTakenBackUnlessTheMitraHasSpokenSince(t *testing.T) {
	w, ctx := setup(t)
	revived := func(id string) availability.State {
		states, err := w.Revive(ctx, []string{id, nobody})
		w.NoError(err)
		w.Len(states, 1)
		w.Equal(w.state(id), states[0])
		return states[0]
	}
	judged := func() availability.State {
		m := w.online(before)
		states, flipped, err := w.AutoOffline(ctx, condemn(m), cutoff, fine)
		w.NoError(err)
		w.Len(flipped, 1)
		w.Equal(w.state(m.ID), states[0])
		w.WithinDuration(one[time.Time](w, "SELECT last_offline_at FROM mitra_online_status WHERE mitra_id = $1", m.ID).
			Add(-time.Second), states[0].Judged, time.Millisecond)
		return states[0]
	}
	// What happens to a mitra after the judgement: a call, or SQL.
	happens := func(id string, what ...string) {
		for _, do := range what {
			switch do {
			case "online", "offline":
				w.did(w.SetOnline(ctx, id, do == "online"))
			case "repair":
				w.did(w.Repair(ctx))
			default:
				w.exec(strings.ReplaceAll(do, "$1", "'"+id+"'"))
			}
		}
	}
	const (
		on     = "UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1"
		off    = "UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1"
		unseen = "SET LOCAL session_replication_role = replica; "
	)
	for name, change := range map[string][]string{
		"nothing": nil,
		"its sessions and whether it is active": {
			"INSERT INTO chat_sessions (status, mitra_id) VALUES ('active', $1)", "UPDATE mitras SET is_active = false WHERE id = $1",
		},
	} {
		m := judged()
		happens(m.ID, change...)
		logs := w.logs()
		st := revived(m.ID)
		w.True(st.Online, name)
		w.Zero(st.Judged, name)
		w.Greater(st.Version, m.Version, name)
		w.Equal(logs+1, w.logs(), name)
		w.Equal(st.Version, revived(m.ID).Version, "once")
	}
	for name, change := range map[string][]string{
		"it went offline itself":                   {"offline"},
		"it went online, and offline":              {"online", "offline"},
		"it went online, and SQL sets it offline":  {"online", off},
		"SQL sets it online, and offline":          {on, off},
		"SQL sets it offline once more":            {off},
		"no trigger saw it go online, and offline": {unseen + on, "repair", unseen + off, "repair"},
		"it was never online":                      {"DELETE FROM mitra_online_status WHERE mitra_id = $1"},
	} {
		m := judged()
		happens(m.ID, change...)
		w.Zero(w.state(m.ID).Judged, name)
		w.False(revived(m.ID).Online, name)
	}
	w.requireTruth()
}
