package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

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
			t.Parallel()
			w := setup(t)
			id := w.session("active", w.mitra())
			tried := w.failing(code, 4)
			_, states, err := w.src.End(t.Context(), id, "completed")
			require.NoError(t, err)
			require.Zero(t, states[0].Sessions)
			require.Equal(t, 5, tried())
			w.requireTruth()
		})
	}
}

func TestTriesAreBoundedAndOtherErrorsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	for code, tries := range map[string]int{"40001": 5, "23514": 1} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			id := w.session("active", w.mitra())
			tried := w.failing(code, 100)
			_, _, err := w.src.End(t.Context(), id, "completed")
			var refused *pgconn.PgError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, code, refused.Code)
			require.Equal(t, tries, tried())
		})
	}
}

func TestWhoIsOutOfTimeChangesNothingLater(t *testing.T) {
	t.Parallel()
	w, ctx := setup(t), t.Context()
	id := w.mitra()
	before := w.state(id)
	hasty := open(t, w.URL, postgres.Timeout(time.Second))
	tx := w.begin()
	_, err := tx.Exec(ctx, "SELECT FROM mitras FOR UPDATE")
	require.NoError(t, err)
	_, err = hasty.SetOnline(ctx, id, true)
	require.Error(t, err)
	require.Regexp(t, "lock timeout|no answer within 1s", err.Error())
	require.Eventually(t, func() bool { return w.locked() == 0 }, patience, 5*time.Millisecond, "the server waits on")
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, before, w.state(id))
}

func TestAServerThatIsBackAfterItsEndIsReadFromTheBeginning(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db, ctx := server.Database(), t.Context()
	w := world{DB: db, t: t, src: open(t, db.URL)}
	require.NoError(t, w.src.Migrate(ctx))
	ids := []string{w.mitra(), w.mitra()}
	var at availability.Cursor
	w.feed(&at)
	w.feed(&at)
	server.Kill()
	_, _, err := w.src.Feed(ctx, at)
	require.Error(t, err)
	_, err = w.src.SetOnline(ctx, ids[0], true)
	require.Error(t, err)
	require.ErrorContains(t, w.src.Migrate(ctx), "migrate")
	server.Restart()
	db.Reset()
	require.Eventually(t, func() bool { // a connection of the former life may be left
		states, now, err := w.src.Feed(ctx, at)
		return err == nil && len(states) == len(ids) && now.Connection != at.Connection
	}, patience, 5*time.Millisecond)
	w.requireTruth()
}

// A standby may be hours behind, and what it says would pass for the truth.
func TestNobodyAsksAStandby(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), pgtest.Start(t, pgtest.Replicated...)
	w := world{DB: server.Database(), t: t}
	require.NoError(t, open(t, w.URL).Migrate(ctx))
	id := w.mitra()
	standby := server.Standby().URL(w.Name)

	alone, err := postgres.Open(ctx, standby)
	require.NoError(t, err)
	t.Cleanup(alone.Close)
	_, err = alone.CountOnline(ctx)
	require.ErrorContains(t, err, "standby")
	require.Error(t, alone.Check(ctx))

	_, folder, _ := strings.Cut(w.URL, "host=")
	both := open(t, standby+","+folder)
	_, err = both.SetOnline(ctx, id, true)
	require.NoError(t, err, "the primary is found, wherever it stands in the URL")
	n, err := both.CountOnline(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, _, err = both.Feed(ctx, availability.Cursor{})
	require.NoError(t, err)
}
