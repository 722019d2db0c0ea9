package postgres_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

func TestMigrationsRunOnceHoweverManyStartAtOnce(t *testing.T) {
	w, ctx := blank(t)
	migrations := make(chan error, 3)
	for range cap(migrations) {
		src := open(t, w.URL)
		go func() { migrations <- src.Migrate(ctx) }()
	}
	for range cap(migrations) {
		w.NoError(<-migrations)
	}
	w.NoError(w.Migrate(ctx))
	w.Equal(1, one[int](w, "SELECT count(*) FROM availability_migrations WHERE version_id > 0"))
	w.mitra()
	w.requireTruth()
}

// A database of somebody who has had such a service for years.
const formerTables = `
	CREATE TYPE session_status AS ENUM ('searching', 'active', 'pending_payment', 'completed', 'cancelled', 'expired');
	CREATE TYPE online_status AS ENUM ('online', 'offline');
	CREATE TABLE mitras (id uuid PRIMARY KEY, name text NOT NULL, is_active boolean, "Größe" int);
	CREATE TABLE mitra_online_status (mitra_id uuid NOT NULL REFERENCES mitras, is_online boolean NOT NULL,
		last_online_at timestamp, last_offline_at timestamp, device text DEFAULT 'phone');
	CREATE TABLE mitra_online_logs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), mitra_id uuid NOT NULL REFERENCES mitras,
		status online_status NOT NULL, created_at timestamp NOT NULL);
	CREATE TABLE chat_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), customer text NOT NULL DEFAULT 'c',
		mitra_id uuid REFERENCES mitras, status session_status NOT NULL);
	CREATE TABLE auth_sessions (token text PRIMARY KEY, mitra_id uuid, revoked_at timestamptz);
	CREATE TABLE app_config (key text PRIMARY KEY, value json NOT NULL, note text DEFAULT 'n');
	INSERT INTO mitras VALUES ('11111111-1111-4111-8111-111111111111', 'a', true, 1), ('22222222-2222-4222-8222-222222222222', 'b', NULL, 2);
	INSERT INTO mitra_online_status VALUES ('11111111-1111-4111-8111-111111111111', true, '2026-01-01 10:00');
	INSERT INTO chat_sessions (mitra_id, status) VALUES ('11111111-1111-4111-8111-111111111111', 'active'), (NULL, 'searching');
	INSERT INTO auth_sessions VALUES ('t', '11111111-1111-4111-8111-111111111111', NULL);
	INSERT INTO app_config VALUES ('max_customers_per_mitra', '7'), ('theirs', '{"x": 1}');`

func TestTablesThatAreThereKeepTheirColumnsAndGetWhatIsMissing(t *testing.T) {
	w, ctx := blank(t)
	w.exec(formerTables)
	w.exec("ALTER DATABASE " + w.Name + " SET timezone = 'Asia/Jakarta'")
	columns := `SELECT string_agg(format('%s.%s %s %s %s', table_name, column_name, udt_name, is_nullable, column_default), E'\n'
		ORDER BY table_name, ordinal_position) FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name NOT LIKE '%availability%'
		AND NOT (table_name = 'mitra_online_status' AND column_name IN ('last_heartbeat_at', 'updated_at'))
		AND NOT (table_name = 'mitras' AND column_name = 'display_name')`
	former := one[string](w, columns)
	w.NoError(w.Migrate(ctx))
	w.Equal(former, one[string](w, columns))

	const a, b = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	w.Equal(availability.State{ID: a, Version: 2, Online: true, Active: true, Sessions: 1,
		Seen: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)}, w.state(a))
	w.False(w.state(b).Active)
	set, err := w.Settings(ctx)
	w.NoError(err)
	w.Equal(availability.Settings{MaxCustomers: 7, StaleAfter: 2 * time.Minute, RequirePing: true, PingInterval: 30 * time.Second}, set)
	w.NoError(w.PutSetting(ctx, "max_customers_per_mitra", 8))
	w.Equal("n", one[string](w, "SELECT note FROM app_config WHERE key = 'max_customers_per_mitra'"))

	w.did(w.SetActive(ctx, b, true))
	on, err := w.SetOnline(ctx, b, true)
	w.NoError(err)
	w.WithinDuration(one[time.Time](w, "SELECT now()"), on.Seen, patience, "in UTC, whatever the database's zone is")
	session := one[string](w, "SELECT id::text FROM chat_sessions WHERE status = 'searching'")
	w.moved(w.Accept(ctx, session, a, 2))
	for _, paid := range []bool{false, true} {
		w.moved(w.Extend(ctx, session, paid))
	}
	w.moved(w.Reroute(ctx, session, b, 1))
	w.moved(w.End(ctx, session, "expired"))
	_, flipped, err := w.AutoOffline(ctx, condemn(w.state(a)), time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC), fine)
	w.NoError(err)
	w.Equal([]string{a}, flipped)
	w.did(w.SetActive(ctx, a, false))
	w.Equal(1, one[int](w, "SELECT count(revoked_at) FROM auth_sessions"))
	_, err = w.Exec(ctx, "INSERT INTO mitra_online_status VALUES ($1, true)", a)
	w.ErrorContains(err, "availability_one_status", "a mitra has one status")
	w.requireTruth()
}

// page is a block of SQL of the page for operators.
func page(t *testing.T, with string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/availability.md")
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "```sql\n")[1:] {
		if block, _, _ := strings.Cut(part, "```"); strings.Contains(block, with) {
			return block
		}
	}
	t.Fatal("no such block:", with)
	return ""
}

func TestWhatWasMadeIsTakenAwayAndMadeAgainAsThePageSays(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	w.session("active", id)
	w.exec(page(t, "DROP VIEW"))
	w.session("active", id)
	w.Zero(one[int](w, "SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'availability%') + (SELECT count(*) FROM pg_class WHERE relname LIKE '%availability%')"))
	w.exec(page(t, "CONCURRENTLY"))
	w.NoError(w.Migrate(ctx))
	w.Reset() // of plans that name what was dropped
	w.Equal(2, w.state(id).Sessions)
	w.Zero(one[int](w, "SELECT count(*) FROM ("+strings.TrimSuffix(strings.TrimSpace(page(t, "SELECT mitra_id")), ";")+") wrong"))
}

func TestTheServicesRoleNeedsWhatThePageSays(t *testing.T) {
	w, ctx := setup(t)
	role := w.Name + "_service"
	w.exec("CREATE ROLE " + role + " LOGIN; GRANT SELECT, UPDATE ON mitras, chat_sessions, auth_sessions TO " + role +
		"; GRANT SELECT, INSERT, UPDATE ON mitra_online_status, app_config, mitra_availability TO " + role +
		"; GRANT SELECT, INSERT ON mitra_online_logs TO " + role +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON availability_fleets TO " + role +
		"; GRANT SELECT ON mitra_availability_state, mitra_availability_truth TO " + role)
	a, b, session, off := w.mitra(), w.mitra(), w.session("searching", nil), w.mitra()
	w.Source = open(t, w.As(role))
	_, _, err := w.Feed(ctx, availability.Cursor{})
	w.NoError(err)
	w.did(w.Page(ctx, "", 9))
	w.did(w.Announce(ctx, "one", time.Minute))
	w.did(w.Repair(ctx))
	w.did(w.Outbid(ctx, []availability.Versioned{{ID: nobody, Version: 1}}))
	w.did(w.SetActive(ctx, off, false))
	w.moved(w.Accept(ctx, session, a, 1))
	w.moved(w.Extend(ctx, session, false))
	w.moved(w.Reroute(ctx, session, b, 1))
	w.moved(w.End(ctx, session, "completed"))
	st, err := w.SetOnline(ctx, a, true)
	w.NoError(err)
	_, flipped, err := w.AutoOffline(ctx, condemn(st), time.Now().Add(time.Hour), fine)
	w.NoError(err)
	w.Equal([]string{a}, flipped)
	w.did(w.MirrorHeartbeats(ctx, []availability.Heartbeat{{ID: a, At: time.Now()}}))
	w.did(w.Available(ctx, time.Time{}, 1, 1))
	w.did(w.CountOnline(ctx))
	w.did(w.List(ctx, postgres.Listing{Limit: 9}))
	w.did(w.Source.Mitra(ctx, a))
	w.did(w.Settings(ctx))
	w.NoError(w.PutSetting(ctx, "require_ping", true))
	w.requireTruth()
}

func TestTablesLiveInTheFirstSchemaOfTheSearchPath(t *testing.T) {
	w, ctx := blank(t)
	w.exec("CREATE SCHEMA app")
	w.Source = open(t, w.URL+"&search_path=app")
	w.NoError(w.Migrate(ctx))
	id := one[string](w, "INSERT INTO app.mitras DEFAULT VALUES RETURNING id::text") // search_path does not name it here
	w.True(w.state(id).Active)
	st, err := w.SetOnline(ctx, id, true)
	w.NoError(err)
	w.True(st.Online)
	w.Zero(one[int](w, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"))
}

func TestSettingsAreReadAndStoredByTheirNames(t *testing.T) {
	w, ctx := setup(t)
	set, err := w.Settings(ctx)
	w.NoError(err)
	w.Equal(availability.Settings{MaxCustomers: 3, StaleAfter: 2 * time.Minute, RequirePing: true, PingInterval: 30 * time.Second}, set)
	for name, value := range map[string]any{
		"max_customers_per_mitra": 0, "stale_after_seconds": 45.0, "require_ping": false, "heartbeat_cadence_seconds": int64(5),
	} {
		w.NoError(w.PutSetting(ctx, name, value))
	}
	changed := availability.Settings{StaleAfter: 45 * time.Second, PingInterval: 5 * time.Second}
	set, err = w.Settings(ctx)
	w.NoError(err)
	w.Equal(changed, set)

	for _, bad := range []struct {
		name  string
		value any
	}{
		{"max_customers_per_mitra", -1}, {"max_customers_per_mitra", 1.5}, {"max_customers_per_mitra", "3"}, {"max_customers_per_mitra", nil},
		{"stale_after_seconds", 0}, {"stale_after_seconds", 1e18}, {"heartbeat_cadence_seconds", 0}, {"require_ping", 1}, {"require_ping", nil},
		{"require_ping", func() {}}, {"theirs", 1}, {"", 1},
	} {
		w.ErrorIs(w.PutSetting(ctx, bad.name, bad.value), availability.ErrSetting, bad)
	}
	set, err = w.Settings(ctx)
	w.NoError(err)
	w.Equal(changed, set)

	w.exec("DELETE FROM app_config WHERE key = 'max_customers_per_mitra'")
	set, err = w.Settings(ctx)
	w.ErrorIs(err, availability.ErrSetting)
	w.ErrorContains(err, "max_customers_per_mitra: app_config has no row of it")
	w.Equal(changed, set, "a row that is gone is like one that is wrong")
	w.exec(`UPDATE app_config SET value = '"soon"' WHERE key = 'stale_after_seconds'`)
	w.exec(`UPDATE app_config SET value = 'true' WHERE key = 'require_ping'`)
	set, err = w.Settings(ctx)
	w.ErrorIs(err, availability.ErrSetting)
	w.ErrorContains(err, "stale_after_seconds")
	w.NotContains(err.Error(), "require_ping")
	last := availability.Settings{StaleAfter: 45 * time.Second, RequirePing: true,
		PingInterval: 5 * time.Second}
	w.Equal(last, set, "what makes no sense is as it was last read, and the others are of now")

	other, err := postgres.Open(ctx, w.DB.URL, postgres.Timeout(patience))
	w.NoError(err)
	t.Cleanup(other.Close)
	set, err = other.Settings(ctx)
	w.ErrorIs(err, availability.ErrSetting)
	last.MaxCustomers, last.StaleAfter = 3, 2*time.Minute
	w.Equal(last, set, "who has read it never has its default")
}

func TestAnAddressThatIsNoneIsRefusedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), "postgres://user:secret@host:port/db")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

// Nobody could go online for the first time: ON CONFLICT takes no such constraint.
func TestADeferrableConstraintIsNamedWithWhatToDo(t *testing.T) {
	w, ctx := blank(t)
	w.exec(`CREATE TABLE mitra_online_status (mitra_id uuid CONSTRAINT theirs UNIQUE DEFERRABLE)`)
	err := w.Migrate(ctx)
	w.ErrorContains(err, "constraint theirs on mitra_online_status (mitra_id) is deferrable")
	refused, ok := errors.AsType[*pgconn.PgError](err)
	w.True(ok)
	w.Equal("42P17", refused.Code, "to try again does not help")
	_, run, _ := strings.Cut(refused.Message, "run: ")
	w.exec(run)
	w.NoError(w.Migrate(ctx))
	w.NoError(w.Check(ctx))
	w.did(w.SetOnline(ctx, w.mitra(), true))

	w.exec(`ALTER TABLE mitra_online_status ADD CONSTRAINT later UNIQUE (mitra_id) DEFERRABLE`)
	err = w.Check(ctx)
	w.ErrorIs(err, postgres.ErrLacking)
	w.ErrorContains(err, "later")
	_, run, _ = strings.Cut(err.Error(), "run: ")
	w.exec(run)
	w.NoError(w.Check(ctx))
}

func TestWhatSomebodyDroppedIsNamed(t *testing.T) {
	w, _ := setup(t)
	for _, c := range []struct{ drop, named string }{
		{"DROP FUNCTION availability_outbid", "function availability_outbid"},
		{"DROP FUNCTION availability_unjudged CASCADE", "trigger availability_unjudged on mitra_availability"},
		{"DROP TABLE availability_fleets", "relation availability_fleets"},
	} {
		w.NoError(w.Migrate(t.Context()), "what was made once is not made again")
		w.exec(c.drop)
		err := w.Check(t.Context())
		w.ErrorIs(err, postgres.ErrLacking)
		w.ErrorContains(err, c.named)
	}
}
