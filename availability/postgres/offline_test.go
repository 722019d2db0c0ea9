package postgres_test

import (
	"context"
	"testing"
	"time"

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
	w, ctx := setup(t)
	silent, heard, stale, off := w.online(before), w.online(cutoff), w.online(before), w.online(before)
	never := w.online(before)
	w.exec("UPDATE mitra_online_status SET last_online_at = NULL, last_heartbeat_at = NULL WHERE mitra_id = $1", never.ID)
	those := condemn(silent, heard, stale, never, availability.State{ID: nobody, Version: 1}, availability.State{ID: "x", Version: 1})
	w.exec("UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1", stale.ID) // it came back
	off, err := w.SetOnline(ctx, off.ID, false)
	w.NoError(err)
	those = append(those, condemn(off)...)
	logs := w.logs()

	states, flipped, err := w.AutoOffline(ctx, those, cutoff, fine)
	w.NoError(err)
	w.ElementsMatch([]string{silent.ID, never.ID}, flipped)
	w.Len(states, 5, "of all that are known")
	for _, st := range states {
		w.Equal(w.state(st.ID), st)
		w.Equal(st.ID == heard.ID || st.ID == stale.ID, st.Online)
	}
	w.Equal(silent.Version+1, w.state(silent.ID).Version)
	w.Equal(logs+2, w.logs())
	w.Equal(1, one[int](w, "SELECT count(*) FROM mitra_online_logs WHERE mitra_id = $1 AND status = 'offline'", silent.ID))

	_, flipped, err = w.AutoOffline(ctx, those, cutoff, fine)
	w.NoError(err)
	w.Empty(flipped, "a version is good for one flip")
	w.Equal(logs+2, w.logs())
	w.requireTruth()
}

func TestAFlipThatIsNotConfirmedIsUndone(t *testing.T) {
	w, ctx := setup(t)
	st := w.online(before)
	asked := 0
	states, flipped, err := w.AutoOffline(ctx, condemn(st), cutoff, func() error {
		asked++
		w.Zero(w.logs(), "nobody has seen it yet")
		return errNo
	})
	w.ErrorIs(err, errNo)
	w.Empty(states)
	w.Empty(flipped)
	w.Equal(1, asked)
	w.Equal(st, w.state(st.ID))
	w.Zero(w.logs())
}

func TestARowThatSomebodyHoldsKeepsNobodyElseOnline(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"of mitras":    "SELECT FROM mitras WHERE id = $1 FOR UPDATE",
		"of status":    "SELECT FROM mitra_online_status WHERE mitra_id = $1 FOR UPDATE",
		"of the state": "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			w, ctx := setup(t)
			first, held, last := w.online(before), w.online(before), w.online(before)
			those := condemn(first, held, last)
			tx := w.begin()
			w.did(tx.Exec(ctx, hold, held.ID))
			bounded, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			states, flipped, err := w.AutoOffline(bounded, those, cutoff, fine)
			w.NoError(err)
			w.ElementsMatch([]string{first.ID, last.ID}, flipped)
			w.Len(states, 3, "of all")
			w.Equal(held, w.state(held.ID))
			w.NoError(tx.Rollback(ctx))
			_, flipped, err = w.AutoOffline(ctx, those, cutoff, fine)
			w.NoError(err)
			w.Equal([]string{held.ID}, flipped)
			w.requireTruth()
		})
	}
}

func TestWhoGoesOnlineWhileItIsFlippedComesAfterTheFlip(t *testing.T) {
	w, ctx := setup(t)
	st := w.online(before)
	back := make(chan availability.State)
	_, flipped, err := w.AutoOffline(ctx, condemn(st), cutoff, func() error {
		go func() {
			st, _ := w.SetOnline(ctx, st.ID, true)
			back <- st
		}()
		w.awaitLocked()
		return nil
	})
	w.NoError(err)
	w.Equal([]string{st.ID}, flipped)
	last := <-back
	w.True(last.Online)
	w.Equal(st.Version+2, last.Version)
	w.Equal(last, w.state(st.ID))
	w.Equal("offline,online", one[string](w, "SELECT string_agg(status, ',' ORDER BY id) FROM mitra_online_logs"))
}

// Where no foreign key takes it along, a status outlives its mitra.
func TestTheStatusOfAMitraWhoIsGoneGoesOffline(t *testing.T) {
	w, ctx := setup(t)
	gone, other := w.online(before), w.online(before)
	w.exec(`DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint
			WHERE contype = 'f' AND confrelid = 'mitras'::regclass AND conrelid <> 'mitra_online_logs'::regclass
		LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$`)
	w.exec("DELETE FROM mitra_online_logs WHERE mitra_id = $1", gone.ID)
	w.exec("DELETE FROM mitras WHERE id = $1", gone.ID)
	_, flipped, err := w.AutoOffline(ctx, condemn(w.state(gone.ID), other), cutoff, fine)
	w.NoError(err)
	w.ElementsMatch([]string{gone.ID, other.ID}, flipped)
}

func TestFleetsHearOfEachOther(t *testing.T) {
	w, ctx := setup(t)
	announced := func(fleet string, copies time.Duration) time.Duration {
		t.Helper()
		others, err := w.Announce(ctx, fleet, copies)
		w.NoError(err)
		return others
	}
	w.Zero(announced("one", time.Minute))
	w.Zero(announced("one", time.Minute), "itself is no other")
	w.Equal(time.Minute, announced("two", time.Second))
	w.Equal(time.Second, announced("one", time.Minute))
	w.Equal(time.Minute, announced("three", time.Hour))
	w.exec("UPDATE availability_fleets SET seen_at = seen_at - interval '11 minutes' WHERE name <> 'one'")
	w.Equal(time.Hour, announced("one", time.Minute), "its next copy is to come")
	w.exec("UPDATE availability_fleets SET seen_at = seen_at - interval '3 hours' WHERE name = 'three'")
	w.Zero(announced("one", time.Minute))
}
