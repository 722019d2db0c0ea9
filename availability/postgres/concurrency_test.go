package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

func TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const mitras, places, callers = 100, 3, 1000
	ids := w.mitras(mitras)
	var accepted, full atomic.Int32
	var wait sync.WaitGroup
	for i := range callers {
		session := w.session("searching", nil)
		wait.Go(func() {
			_, _, err := w.src.Accept(t.Context(), session, ids[i*mitras/callers], places) // one mitra after the other
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
	require.EqualValues(t, mitras*places, accepted.Load())
	require.EqualValues(t, callers-mitras*places, full.Load())
	require.Equal(t, mitras*places, one[int](w, "SELECT count(*) FROM chat_sessions WHERE status = 'active'"))
	require.Equal(t, places, one[int](w, "SELECT max(active_sessions) FROM mitra_availability"))
	w.requireTruth()
}

func TestASessionThatIsReroutedIsNeverSeenTwiceOrNotAtAll(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	a, b := w.mitra(), w.mitra()
	session := w.session("active", a)
	var moving sync.WaitGroup
	var over atomic.Bool
	moving.Go(func() {
		defer over.Store(true)
		for i := range 200 {
			to := []string{b, a}[i%2]
			_, states, err := w.src.Reroute(ctx, session, to, 1)
			if err != nil || len(states) != 2 || states[0].Sessions+states[1].Sessions != 1 {
				t.Error(states, err)
				return
			}
		}
	})
	defer moving.Wait()
	for looks := 0; !over.Load() || looks == 0; looks++ {
		states, err := w.src.States(ctx, []string{a, b})
		require.NoError(t, err)
		require.Equal(t, 1, states[0].Sessions+states[1].Sessions)
		require.Equal(t, 1, one[int](w, "SELECT count(*) FROM chat_sessions c JOIN mitra_availability a USING (mitra_id) WHERE a.active_sessions = 1"))
	}
}

// Of two states the one with the lower id is locked first, whoever gives and whoever takes.
func TestARerouteLocksStatesInTheirOrder(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	ids := w.mitras(2)
	slices.Sort(ids)
	for i, to := range ids {
		session := w.session("active", ids[1-i])
		tx := w.begin()
		_, err := tx.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE", ids[0])
		require.NoError(t, err)
		moved := make(chan error)
		go func() {
			_, _, err := w.src.Reroute(ctx, session, to, 9)
			moved <- err
		}()
		w.awaitLocked()
		_, err = tx.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE NOWAIT", ids[1])
		require.NoError(t, err, "it is not locked yet")
		require.NoError(t, tx.Commit(ctx))
		require.NoError(t, <-moved)
	}
}

// An extension needs no state, and waits for nobody who holds it: so it is part of no circle.
func TestAnExtensionLocksTheSessionAlone(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	mitra := w.mitra()
	session := w.session("active", mitra)
	tx := w.begin()
	for _, lock := range []string{
		"SELECT FROM mitras WHERE id = $1 FOR UPDATE", "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE",
	} {
		_, err := tx.Exec(ctx, lock, mitra)
		require.NoError(t, err)
	}
	for _, paid := range []bool{false, true} {
		_, _, err := w.src.Extend(ctx, session, paid)
		require.NoError(t, err)
	}
}

// All writers and bulk statements of psql's touch the same few mitras at once.
func TestWritersAndRawStatementsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ids := w.mitras(8)
	var sessions []string
	for i := range 64 {
		sessions = append(sessions, w.session("active", ids[i%8]))
	}
	w.exec("INSERT INTO mitra_online_status (mitra_id, is_online) SELECT id, true FROM mitras")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, w.src.PutSetting(ctx, "max_customers_per_mitra", 20))
	var wait sync.WaitGroup
	var count atomic.Int32
	const enough = 4000
	forever := func(what string, f func(mitra, session string) error) {
		wait.Go(func() {
			for ctx.Err() == nil {
				err := f(ids[rand.IntN(len(ids))], sessions[rand.IntN(len(sessions))])
				switch {
				case err == nil, errors.Is(err, availability.ErrTaken), errors.Is(err, availability.ErrFull),
					errors.Is(err, availability.ErrInactive), ctx.Err() != nil:
				default:
					t.Error(what, err)
					stop()
				}
				if count.Add(1) >= enough {
					stop()
				}
			}
		})
	}
	raw := func(sql string) {
		forever(sql, func(string, string) error {
			_, err := w.Exec(ctx, sql)
			return err
		})
	}
	for range 2 {
		forever("accept", func(mitra, session string) error {
			_, _, err := w.src.Accept(ctx, session, mitra, 20)
			return err
		})
		forever("reroute", func(mitra, session string) error {
			_, _, err := w.src.Reroute(ctx, session, mitra, 20)
			return err
		})
		forever("extend", func(_, session string) error {
			_, _, err := w.src.Extend(ctx, session, rand.IntN(2) > 0)
			return err
		})
		forever("end", func(_, session string) error {
			_, _, err := w.src.End(ctx, session, "completed")
			return err
		})
	}
	forever("online", func(mitra, _ string) error {
		_, err := w.src.SetOnline(ctx, mitra, rand.IntN(4) > 0)
		return err
	})
	forever("active", func(mitra, _ string) error {
		_, err := w.src.SetActive(ctx, mitra, rand.IntN(4) > 0)
		return err
	})
	forever("auto-offline", func(string, string) error {
		states, err := w.src.States(ctx, ids)
		if err == nil {
			_, _, err = w.src.AutoOffline(ctx, condemn(states...), time.Now().Add(time.Hour), fine)
		}
		return err
	})
	forever("mirror", func(mitra, _ string) error {
		_, err := w.src.MirrorHeartbeats(ctx, []availability.Heartbeat{{ID: mitra, At: time.Now()}})
		return err
	})
	forever("repair", func(string, string) error {
		repaired, err := w.src.Repair(ctx)
		if err == nil && len(repaired) > 0 {
			t.Error("nothing was wrong", repaired)
		}
		return err
	})
	forever("outbid", func(mitra, _ string) error {
		_, err := w.src.Outbid(ctx, []string{mitra}, []int64{1})
		return err
	})
	// Statements that lock many rows do so in the order of ids: two that lock them as they lie in the
	// table can deadlock with one another, with triggers or without.
	raw(`WITH mine AS MATERIALIZED (SELECT id FROM chat_sessions WHERE status = 'completed' ORDER BY id FOR NO KEY UPDATE)
		UPDATE chat_sessions s SET status = CASE WHEN random() < 0.5 THEN 'searching' ELSE 'completed' END, mitra_id = NULL
		FROM mine WHERE s.id = mine.id`)
	raw(`WITH mine AS MATERIALIZED (SELECT id FROM chat_sessions
			WHERE status IN ('active', 'pending_payment') AND random() < 0.5 ORDER BY id FOR NO KEY UPDATE)
		UPDATE chat_sessions s SET status = 'completed' FROM mine WHERE s.id = mine.id`)
	raw("UPDATE mitra_online_status SET is_online = true WHERE mitra_id = (SELECT mitra_id FROM mitra_online_status ORDER BY random() LIMIT 1)")
	raw(`WITH mine AS MATERIALIZED (SELECT mitra_id FROM mitra_online_status ORDER BY mitra_id FOR NO KEY UPDATE)
		UPDATE mitra_online_status s SET is_online = NOT is_online FROM mine WHERE s.mitra_id = mine.mitra_id`)
	wait.Wait()
	require.GreaterOrEqual(t, count.Load(), int32(enough))

	// A connection reports its deadlocks when it ends, at the latest: also those after which a writer
	// tried again.
	w.src.Close()
	w.Reset()
	require.Eventually(t, func() bool {
		return one[int](w, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") == 1
	}, patience, 5*time.Millisecond)
	require.Zero(t, one[int](w, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
	w.src = open(t, w.URL)
	w.requireTruth()
}

func TestTheFeedWaitsForNobodysConnection(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	var mitras []string // one alone would not take every connection
	for range 10 {
		mitras = append(mitras, w.mitra())
	}
	mitra := mitras[0]
	few, err := postgres.Open(ctx, w.URL+"&pool_max_conns=2", postgres.Timeout(patience))
	require.NoError(t, err)
	defer few.Close()
	tx, err := w.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }() // else nobody ends the writers if the test fails
	_, err = tx.Exec(ctx, "SELECT FROM mitras WHERE id = ANY($1) FOR UPDATE", mitras)
	require.NoError(t, err)
	var writers sync.WaitGroup
	for _, mitra := range mitras {
		writers.Go(func() {
			if _, err := few.SetOnline(ctx, mitra, true); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return few.Stat().Busy == 2 }, patience, time.Millisecond)
	short, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	_, _, err = few.Feed(short, availability.Cursor{})
	require.NoError(t, err)
	// Nor does the rest of what keeps the mirror.
	_, err = few.Page(short, "", 1)
	require.NoError(t, err)
	_, err = few.States(short, []string{mitra})
	require.NoError(t, err)
	_, err = few.Outbid(short, []string{mitra}, []int64{40})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	writers.Wait()
}

func TestARowThatSomebodyHasLockedLeavesConnectionsForOthers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	src, err := postgres.Open(t.Context(), w.URL+"&pool_max_conns=4", postgres.Timeout(patience))
	require.NoError(t, err)
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
			_, err := tx.Exec(t.Context(), sql, session, all)
			require.NoError(t, err)
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
			require.NoError(t, err, name)
		}
		cancel()
		callers.Wait()
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
