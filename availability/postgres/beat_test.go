package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

func TestAHeartbeatAtTheSourceIsOfItsOwnClockAndTakesAVersion(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	for _, last := range []string{"NULL", "'2020-01-01'", "'infinity'", "'-infinity'", "'2999-01-01'"} {
		m := w.online(before)
		w.exec("UPDATE mitra_online_status SET last_heartbeat_at = " + last + ", last_online_at = NULL WHERE mitra_id = '" + m.ID + "'")
		begun := one[time.Time](w, "SELECT date_trunc('milliseconds', clock_timestamp())")
		st, err := w.src.Beat(ctx, m.ID)
		require.NoError(t, err)
		require.False(t, st.Seen.Before(begun), last)
		require.False(t, st.Seen.After(one[time.Time](w, "SELECT clock_timestamp()")), last)
		require.Equal(t, m.Version+1, st.Version)
		require.Equal(t, st, w.state(m.ID))
	}
	ahead := w.online(before)
	w.exec("UPDATE mitra_online_status SET last_heartbeat_at = now() + interval '23 hours' WHERE mitra_id = $1", ahead.ID)
	st, err := w.src.Beat(ctx, ahead.ID)
	require.NoError(t, err)
	require.Greater(t, time.Until(st.Seen), 22*time.Hour, "one of a time to come counts until then")
	w.requireTruth()
}

func TestAHeartbeatAtTheSourceIsRefusedByName(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	never, off, inactive := w.mitra(), w.online(before), w.online(before)
	_, err := w.src.SetOnline(ctx, off.ID, false)
	require.NoError(t, err)
	_, err = w.src.SetActive(ctx, inactive.ID, false)
	require.NoError(t, err)
	for id, want := range map[string]error{
		nobody: availability.ErrNotFound, "x": availability.ErrNotFound, never: availability.ErrNotOnline,
		off.ID: availability.ErrNotOnline, inactive.ID: availability.ErrInactive,
	} {
		_, err := w.src.Beat(ctx, id)
		require.ErrorIs(t, err, want)
	}
}

func TestAHeartbeatAtTheSourceIsNeverOverruledByAnAutoOffline(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	m := w.online(before)
	_, err := w.src.Beat(ctx, m.ID)
	require.NoError(t, err)
	ahead := time.Now().Add(time.Hour) // a cutoff of another clock
	_, flipped, err := w.src.AutoOffline(ctx, condemn(m), ahead, fine)
	require.NoError(t, err)
	require.Empty(t, flipped, "the version is another")

	// One that comes while the auto-offline is about to commit waits for what it decides.
	for _, c := range []struct {
		confirm, beat error
	}{{nil, availability.ErrNotOnline}, {errNo, nil}} {
		m := w.online(before)
		beaten := make(chan error, 1)
		_, _, err := w.src.AutoOffline(ctx, condemn(m), cutoff, func() error {
			go func() {
				_, err := w.src.Beat(ctx, m.ID)
				beaten <- err
			}()
			w.awaitLocked()
			return c.confirm
		})
		require.ErrorIs(t, err, c.confirm)
		require.ErrorIs(t, <-beaten, c.beat)
		require.Equal(t, c.confirm != nil, w.state(m.ID).Online)
	}
}

func TestAJudgementIsTakenBackUnlessTheMitraHasSpokenSince(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	revived := func(id string) availability.State {
		states, err := w.src.Revive(ctx, []string{id, nobody})
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.Equal(t, w.state(id), states[0])
		return states[0]
	}
	judged := func() availability.State {
		m := w.online(before)
		states, flipped, err := w.src.AutoOffline(ctx, condemn(m), cutoff, fine)
		require.NoError(t, err)
		require.Len(t, flipped, 1)
		require.Equal(t, w.state(m.ID), states[0])
		require.WithinDuration(t, one[time.Time](w, "SELECT last_offline_at FROM mitra_online_status WHERE mitra_id = $1", m.ID).
			Add(-time.Second), states[0].Judged, time.Millisecond)
		return states[0]
	}
	for name, change := range map[string]func(id string){
		"nothing": func(string) {},
		"its sessions and whether it is active": func(id string) {
			w.session("active", id)
			w.exec("UPDATE mitras SET is_active = false WHERE id = $1", id)
		},
	} {
		m := judged()
		change(m.ID)
		logs := w.logs()
		st := revived(m.ID)
		require.True(t, st.Online, name)
		require.Zero(t, st.Judged, name)
		require.Greater(t, st.Version, m.Version, name)
		require.Equal(t, logs+1, w.logs(), name)
		require.Equal(t, st.Version, revived(m.ID).Version, "once")
	}
	for name, change := range map[string]func(id string){
		"it went offline itself": func(id string) {
			_, err := w.src.SetOnline(ctx, id, false)
			require.NoError(t, err)
		},
		"it went online, and offline": func(id string) {
			for _, online := range []bool{true, false} {
				_, err := w.src.SetOnline(ctx, id, online)
				require.NoError(t, err)
			}
		},
		"it went online, and SQL sets it offline": func(id string) {
			_, err := w.src.SetOnline(ctx, id, true)
			require.NoError(t, err)
			w.exec("UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", id)
		},
		"SQL sets it online, and offline": func(id string) {
			w.exec("UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1", id)
			w.exec("UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", id)
		},
		"SQL sets it offline once more": func(id string) {
			w.exec("UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", id)
		},
		"no trigger saw it go online, and offline": func(id string) {
			for _, online := range []bool{true, false} {
				tx := w.begin()
				for _, sql := range []string{"SET LOCAL session_replication_role = replica",
					fmt.Sprintf("UPDATE mitra_online_status SET is_online = %v WHERE mitra_id = '%s'", online, id)} {
					_, err := tx.Exec(ctx, sql)
					require.NoError(t, err)
				}
				require.NoError(t, tx.Commit(ctx))
				_, err := w.src.Repair(ctx)
				require.NoError(t, err)
			}
		},
		"it was never online": func(id string) { w.exec("DELETE FROM mitra_online_status WHERE mitra_id = $1", id) },
	} {
		m := judged()
		change(m.ID)
		require.Zero(t, w.state(m.ID).Judged, name)
		require.False(t, revived(m.ID).Online, name)
	}
	w.requireTruth()
}
