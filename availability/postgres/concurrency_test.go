package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

func TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore(t *testing.T) {
	w, _ := setup(t)
	const mitras, places, callers = 100, 3, 1000
	ids := w.mitras(mitras)
	var accepted, full atomic.Int32
	var wait sync.WaitGroup
	for i := range callers {
		session := w.session("searching", nil)
		wait.Go(func() {
			_, _, err := w.Accept(t.Context(), session, ids[i*mitras/callers], places) // one mitra after the other
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, availability.ErrFull):
				full.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	w.EqualValues(mitras*places, accepted.Load())
	w.EqualValues(callers-mitras*places, full.Load())
	w.Equal(mitras*places, one[int](w, "SELECT count(*) FROM chat_sessions WHERE status = 'active'"))
	w.Equal(places, one[int](w, "SELECT max(active_sessions) FROM mitra_availability"))
	w.requireTruth()
}

// Of two states the one with the lower id is locked first, whoever gives and whoever takes.
func TestARerouteLocksStatesInTheirOrder(t *testing.T) {
	w, ctx := setup(t)
	ids := w.mitras(2)
	slices.Sort(ids)
	for i, to := range ids {
		session := w.session("active", ids[1-i])
		tx := w.begin()
		w.did(tx.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE", ids[0]))
		moved := make(chan error)
		go func() {
			_, _, err := w.Reroute(ctx, session, to, 9)
			moved <- err
		}()
		w.awaitLocked()
		w.did(tx.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE NOWAIT", ids[1])) // it is not locked yet
		w.NoError(tx.Commit(ctx))
		w.NoError(<-moved)
	}
}

// An extension needs no state, and waits for nobody who holds it: so it is part of no circle.
func TestAnExtensionLocksTheSessionAlone(t *testing.T) {
	w, ctx := setup(t)
	mitra := w.mitra()
	session := w.session("active", mitra)
	tx := w.begin()
	for _, lock := range []string{
		"SELECT FROM mitras WHERE id = $1 FOR UPDATE", "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE",
	} {
		w.did(tx.Exec(ctx, lock, mitra))
	}
	for _, paid := range []bool{false, true} {
		w.moved(w.Extend(ctx, session, paid))
	}
}

func TestTheFeedWaitsForNobodysConnection(t *testing.T) {
	w, ctx := setup(t)
	var mitras []string // one alone would not take every connection
	for range 10 {
		mitras = append(mitras, w.mitra())
	}
	mitra := mitras[0]
	few, err := postgres.Open(ctx, w.URL+"&pool_max_conns=2", postgres.Timeout(patience))
	w.NoError(err)
	defer few.Close()
	tx, err := w.Begin(ctx)
	w.NoError(err)
	defer func() { _ = tx.Rollback(ctx) }() // else nobody ends the writers if the test fails
	w.did(tx.Exec(ctx, "SELECT FROM mitras WHERE id = ANY($1) FOR UPDATE", mitras))
	var writers sync.WaitGroup
	for _, mitra := range mitras {
		writers.Go(func() {
			if _, err := few.SetOnline(ctx, mitra, true); err != nil {
				t.Error(err)
			}
		})
	}
	// All but one wait for the connection that waits for the lock.
	w.Eventually(func() bool { s := few.Stat(); return s.Busy > 0 && s.Waits > 0 }, patience,
		time.Millisecond)
	short, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	_, _, err = few.Feed(short, availability.Cursor{})
	w.NoError(err)
	// Nor does the rest of what keeps the mirror.
	_, err = few.Page(short, "", 1)
	w.NoError(err)
	_, err = few.States(short, []string{mitra})
	w.NoError(err)
	_, err = few.Outbid(short, []availability.Versioned{{ID: mitra, Version: 40}})
	w.NoError(err)
	w.NoError(tx.Rollback(ctx))
	writers.Wait()
}

func TestARowThatSomebodyHasLockedLeavesConnectionsForOthers(t *testing.T) {
	w, _ := setup(t)
	src, err := postgres.Open(t.Context(), w.URL+"&pool_max_conns=4", postgres.Timeout(patience))
	w.NoError(err)
	t.Cleanup(src.Close)
	held, other := w.mitra(), w.mitra()
	all := []string{held}
	for range 8 {
		all = append(all, w.mitra())
	}
	session := w.session("searching", nil)
	calls := map[string]func(ctx context.Context, i int) error{
		"accept one session": func(ctx context.Context, i int) error {
			_, _, err := src.Accept(ctx, session, []string{held, other}[i%2], 3)
			return err
		},
		"end one session":    func(ctx context.Context, _ int) error { _, _, err := src.End(ctx, session, "completed"); return err },
		"extend one session": func(ctx context.Context, _ int) error { _, _, err := src.Extend(ctx, session, true); return err },
		"accept sessions for one mitra": func(ctx context.Context, _ int) error {
			_, _, err := src.Accept(ctx, w.session("searching", nil), held, 3)
			return err
		},
		"reroute to one mitra": func(ctx context.Context, _ int) error {
			_, _, err := src.Reroute(ctx, w.session("active", other), held, 3)
			return err
		},
		"nine go online": func(ctx context.Context, i int) error {
			_, err := src.SetOnline(ctx, all[i%len(all)], true)
			return err
		},
		"one goes online":  func(ctx context.Context, _ int) error { _, err := src.SetOnline(ctx, held, true); return err },
		"one beats":        func(ctx context.Context, _ int) error { _, err := src.Beat(ctx, held); return err },
		"one is activated": func(ctx context.Context, _ int) error { _, err := src.SetActive(ctx, held, true); return err },
	}
	for name, call := range calls {
		tx := w.begin()
		for _, sql := range []string{
			"SELECT FROM mitras WHERE id = ANY ($2) OR $1::uuid IS NULL FOR UPDATE",
			"SELECT FROM chat_sessions WHERE id = $1 AND $2::uuid[] IS NOT NULL FOR UPDATE",
		} {
			w.did(tx.Exec(t.Context(), sql, session, all))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 30 {
			callers.Go(func() { _ = call(ctx, i) })
		}
		w.awaitLocked()
		for range 10 {
			short, done := context.WithTimeout(t.Context(), patience/2)
			_, err := src.SetOnline(short, other, true)
			done()
			w.NoError(err, name)
		}
		cancel()
		callers.Wait()
		w.NoError(tx.Rollback(t.Context()))
	}
}

func TestALockedTableOfStatusConcernsNoSession(t *testing.T) {
	w, ctx := setup(t)
	a, b, session := w.mitra(), w.mitra(), w.session("searching", nil)
	tx := w.begin()
	w.did(tx.Exec(ctx, "LOCK TABLE mitra_online_status IN ACCESS EXCLUSIVE MODE"))
	_, states, err := w.Accept(ctx, session, a, 1)
	w.NoError(err)
	w.Equal([]availability.State{{ID: a, Version: 2, Active: true, Sessions: 1}}, states)
	w.moved(w.Reroute(ctx, session, b, 1))
	w.moved(w.End(ctx, session, "completed"))
	w.NoError(tx.Rollback(ctx))
	w.requireTruth()
}
