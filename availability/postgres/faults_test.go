package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// failing makes the first times changes of sessions fail with a code. It counts with a sequence,
// which no rollback undoes.
func (w world) failing(code string, times int) (tried func() int) {
	w.t.Helper()
	w.exec(`CREATE SEQUENCE tried;
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('tried') <= ` + strconv.Itoa(times) + ` THEN RAISE SQLSTATE '` + code + `'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER fail BEFORE UPDATE ON chat_sessions FOR EACH ROW EXECUTE FUNCTION fail()`)
	return func() int { return one[int](w, "SELECT last_value FROM tried") }
}

func TestWhatTheServerHasUndoneForOthersIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		t.Run(code, func(t *testing.T) {
			w, _ := setup(t)
			id := w.session("active", w.mitra())
			tried := w.failing(code, 4)
			_, states, err := w.End(t.Context(), id, "completed")
			w.NoError(err)
			w.Zero(states[0].Sessions)
			w.Equal(5, tried())
			w.requireTruth()
		})
	}
}

func TestTriesAreBoundedAndOtherErrorsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	for code, tries := range map[string]int{"40001": 5, "23514": 1} {
		t.Run(code, func(t *testing.T) {
			w, _ := setup(t)
			id := w.session("active", w.mitra())
			tried := w.failing(code, 100)
			_, _, err := w.End(t.Context(), id, "completed")
			var refused *pgconn.PgError
			w.ErrorAs(err, &refused)
			w.Equal(code, refused.Code)
			w.Equal(tries, tried())
		})
	}
}

func TestWhoIsOutOfTimeChangesNothingLater(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	before := w.state(id)
	hasty := open(t, w.URL, postgres.Timeout(time.Second))
	tx := w.begin()
	w.did(tx.Exec(ctx, "SELECT FROM mitras FOR UPDATE"))
	_, err := hasty.SetOnline(ctx, id, true)
	w.Error(err)
	w.Regexp("lock timeout|no answer within 1s", err.Error())
	w.Eventually(func() bool { return w.locked() == 0 }, patience, 5*time.Millisecond, "the server waits on")
	w.NoError(tx.Rollback(ctx))
	w.Equal(before, w.state(id))
}

func TestAServerThatIsBackAfterItsEndIsReadFromTheBeginning(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db, ctx := server.Database(), t.Context()
	w, _ := on(t, db)
	w.NoError(w.Migrate(ctx))
	ids := []string{w.mitra(), w.mitra()}
	var at availability.Cursor
	w.feed(&at)
	w.feed(&at)
	server.Kill()
	_, _, err := w.Feed(ctx, at)
	w.Error(err)
	_, err = w.SetOnline(ctx, ids[0], true)
	w.Error(err)
	w.ErrorContains(w.Migrate(ctx), "migrate")
	server.Restart()
	db.Reset()
	w.Eventually(func() bool { // a connection of the former life may be left
		states, now, err := w.Feed(ctx, at)
		return err == nil && len(states) == len(ids) && now.Connection != at.Connection
	}, patience, 5*time.Millisecond)
	w.requireTruth()
}

// A standby may be hours behind, and what it says would pass for the truth.
func TestNobodyAsksAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Replicated...)
	w, ctx := on(t, server.Database())
	w.NoError(w.Migrate(ctx))
	id := w.mitra()
	standby := server.Standby().URL(w.Name)

	alone := open(t, standby)
	_, err := alone.CountOnline(ctx)
	w.ErrorContains(err, "standby")
	w.Error(alone.Check(ctx))

	_, folder, _ := strings.Cut(w.URL, "host=")
	both := open(t, standby+","+folder)
	w.did(both.SetOnline(ctx, id, true)) // the primary is found, wherever it stands in the URL
	n, err := both.CountOnline(ctx)
	w.NoError(err)
	w.Equal(1, n)
	_, _, err = both.Feed(ctx, availability.Cursor{})
	w.NoError(err)
}
