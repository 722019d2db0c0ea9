package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

// online makes a mitra that is online, and was heard of at a moment.
func (w world) online(seen time.Time) availability.State {
	w.t.Helper()
	id := w.mitra()
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at) VALUES ($1, true, $2, $3)",
		id, seen.Add(-time.Minute), seen)
	return w.state(id)
}

func (w world) logs() int { return one[int](w, "SELECT count(*) FROM mitra_online_logs") }

var (
	cutoff = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before = cutoff.Add(-time.Second)
)

func condemn(states ...availability.State) (those []availability.Versioned) {
	for _, st := range states {
		those = append(those, availability.Versioned{ID: st.ID, Version: st.Version})
	}
	return those
}

func TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	silent, heard, stale, off := w.online(before), w.online(cutoff), w.online(before), w.online(before)
	never := w.online(before)
	w.exec("UPDATE mitra_online_status SET last_online_at = NULL, last_heartbeat_at = NULL WHERE mitra_id = $1", never.ID)
	those := condemn(silent, heard, stale, never, availability.State{ID: nobody, Version: 1}, availability.State{ID: "x", Version: 1})
	w.exec("UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1", stale.ID) // it came back
	off, err := w.src.SetOnline(ctx, off.ID, false)
	require.NoError(t, err)
	those = append(those, condemn(off)...)
	logs := w.logs()

	states, flipped, err := w.src.AutoOffline(ctx, those, cutoff, fine)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{silent.ID, never.ID}, flipped)
	require.Len(t, states, 5, "of all that are known")
	for _, st := range states {
		require.Equal(t, w.state(st.ID), st)
		require.Equal(t, st.ID == heard.ID || st.ID == stale.ID, st.Online)
	}
	require.Equal(t, silent.Version+1, w.state(silent.ID).Version)
	require.Equal(t, logs+2, w.logs())
	require.Equal(t, 1, one[int](w, "SELECT count(*) FROM mitra_online_logs WHERE mitra_id = $1 AND status = 'offline'", silent.ID))

	_, flipped, err = w.src.AutoOffline(ctx, those, cutoff, fine)
	require.NoError(t, err)
	require.Empty(t, flipped, "a version is good for one flip")
	require.Equal(t, logs+2, w.logs())
	w.requireTruth()
}

func TestAFlipThatIsNotConfirmedIsUndone(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	st := w.online(before)
	asked := 0
	states, flipped, err := w.src.AutoOffline(ctx, condemn(st), cutoff, func() error {
		asked++
		require.Zero(t, w.logs(), "nobody has seen it yet")
		return errNo
	})
	require.ErrorIs(t, err, errNo)
	require.Empty(t, states)
	require.Empty(t, flipped)
	require.Equal(t, 1, asked)
	require.Equal(t, st, w.state(st.ID))
	require.Zero(t, w.logs())
}

func TestARowThatSomebodyHoldsKeepsNobodyElseOnline(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"of mitras":    "SELECT FROM mitras WHERE id = $1 FOR UPDATE",
		"of status":    "SELECT FROM mitra_online_status WHERE mitra_id = $1 FOR UPDATE",
		"of the state": "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ctx := setup(t), t.Context()
			first, held, last := w.online(before), w.online(before), w.online(before)
			those := condemn(first, held, last)
			tx := w.begin()
			_, err := tx.Exec(ctx, hold, held.ID)
			require.NoError(t, err)
			bounded, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			states, flipped, err := w.src.AutoOffline(bounded, those, cutoff, fine)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{first.ID, last.ID}, flipped)
			require.Len(t, states, 3, "of all")
			require.Equal(t, held, w.state(held.ID))
			require.NoError(t, tx.Rollback(ctx))
			_, flipped, err = w.src.AutoOffline(ctx, those, cutoff, fine)
			require.NoError(t, err)
			require.Equal(t, []string{held.ID}, flipped)
			w.requireTruth()
		})
	}
}

func TestWhoGoesOnlineWhileItIsFlippedComesAfterTheFlip(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	st := w.online(before)
	back := make(chan availability.State)
	_, flipped, err := w.src.AutoOffline(ctx, condemn(st), cutoff, func() error {
		go func() {
			st, _ := w.src.SetOnline(ctx, st.ID, true)
			back <- st
		}()
		w.awaitLocked()
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{st.ID}, flipped)
	last := <-back
	require.True(t, last.Online)
	require.Equal(t, st.Version+2, last.Version)
	require.Equal(t, last, w.state(st.ID))
	require.Equal(t, "offline,online", one[string](w, "SELECT string_agg(status, ',' ORDER BY id) FROM mitra_online_logs"))
}

// Where no foreign key takes it along, a status outlives its mitra.
func TestTheStatusOfAMitraWhoIsGoneGoesOffline(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	gone, other := w.online(before), w.online(before)
	w.exec(`DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint
			WHERE contype = 'f' AND confrelid = 'mitras'::regclass AND conrelid <> 'mitra_online_logs'::regclass
		LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$`)
	w.exec("DELETE FROM mitra_online_logs WHERE mitra_id = $1", gone.ID)
	w.exec("DELETE FROM mitras WHERE id = $1", gone.ID)
	_, flipped, err := w.src.AutoOffline(ctx, condemn(w.state(gone.ID), other), cutoff, fine)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{gone.ID, other.ID}, flipped)
}

func TestFleetsHearOfEachOther(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	announced := func(fleet string, copies time.Duration) time.Duration {
		t.Helper()
		others, err := w.src.Announce(ctx, fleet, copies)
		require.NoError(t, err)
		return others
	}
	require.Zero(t, announced("one", time.Minute))
	require.Zero(t, announced("one", time.Minute), "itself is no other")
	require.Equal(t, time.Minute, announced("two", time.Second))
	require.Equal(t, time.Second, announced("one", time.Minute))
	require.Equal(t, time.Minute, announced("three", time.Hour))
	w.exec("UPDATE availability_fleets SET seen_at = seen_at - interval '11 minutes' WHERE name <> 'one'")
	require.Equal(t, time.Hour, announced("one", time.Minute), "its next copy is to come")
	w.exec("UPDATE availability_fleets SET seen_at = seen_at - interval '3 hours' WHERE name = 'three'")
	require.Zero(t, announced("one", time.Minute))
}
