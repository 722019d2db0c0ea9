package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

const partitioned = `CREATE TABLE chat_sessions (id uuid NOT NULL DEFAULT gen_random_uuid(), mitra_id uuid, k int NOT NULL DEFAULT 1,
	status text NOT NULL DEFAULT 'searching') PARTITION BY LIST (k);
	CREATE TABLE first PARTITION OF chat_sessions FOR VALUES IN (1);`

// asReplica is how whatever applies others' changes writes: restores, some tools of replication.
const asReplica = "SET session_replication_role = replica; %s; RESET session_replication_role"

// Each way makes three sessions of a mitra that no trigger sees.
func TestRowsThatNoTriggerSawCountWhenASessionIsAccepted(t *testing.T) {
	t.Parallel()
	const three = " (mitra_id, status) SELECT '%s', 'active' FROM generate_series(1, 3)"
	for name, c := range map[string]struct{ before, way, unseen string }{
		"a partition that is attached": {
			before: partitioned,
			way: "CREATE TABLE second (LIKE chat_sessions INCLUDING DEFAULTS); ALTER TABLE second ALTER k SET DEFAULT 2; INSERT INTO second" + three +
				"; ALTER TABLE chat_sessions ATTACH PARTITION second FOR VALUES IN (2)",
			unseen: "chat_sessions has 2 partitions or children (first, second)",
		},
		"a partition that is written to": {
			before: partitioned, way: "INSERT INTO first" + three, unseen: "chat_sessions has 1 partitions or children (first)",
		},
		"a table that inherits": {
			way:    "CREATE TABLE archive () INHERITS (chat_sessions); INSERT INTO archive" + three,
			unseen: "chat_sessions has 1 partitions or children (archive)",
		},
		"a table that comes to inherit": {
			way: "CREATE TABLE archive (LIKE chat_sessions INCLUDING ALL); INSERT INTO archive" + three +
				"; ALTER TABLE archive INHERIT chat_sessions",
			unseen: "chat_sessions has 1 partitions or children (archive)",
		},
		"a trigger that routes rows to a table that inherits": {
			way: `CREATE TABLE archive () INHERITS (chat_sessions);
				CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO archive SELECT NEW.*; RETURN NULL; END';
				CREATE TRIGGER route BEFORE INSERT ON chat_sessions FOR EACH ROW WHEN (NEW.status = 'active') EXECUTE FUNCTION route();
				INSERT INTO chat_sessions` + three,
			unseen: "chat_sessions has 1 partitions or children (archive)",
		},
		"triggers that are off": {
			way:    "ALTER TABLE chat_sessions DISABLE TRIGGER availability_insert; INSERT INTO chat_sessions" + three,
			unseen: "trigger availability_insert on chat_sessions",
		},
		"triggers that were off": {
			way: "ALTER TABLE chat_sessions DISABLE TRIGGER USER; INSERT INTO chat_sessions" + three + "; ALTER TABLE chat_sessions ENABLE TRIGGER USER",
		},
		"a role of replication": {way: strings.Replace(asReplica, "%s", "INSERT INTO chat_sessions"+three, 1)},
		"a table that takes the other's name": {
			way: `ALTER TABLE chat_sessions RENAME TO former;
				CREATE TABLE chat_sessions (LIKE former INCLUDING DEFAULTS); INSERT INTO chat_sessions` + three,
			unseen: "view mitra_availability_truth that reads chat_sessions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ctx := former(t, c.before)
			id, other := w.mitra(), w.mitra()
			w.exec(fmt.Sprintf(c.way, id))
			w.Reset() // of plans that name what was altered
			w.Zero(w.state(id).Sessions, "no trigger has seen it")

			w.refused(availability.ErrFull)(w.Accept(ctx, w.session("searching", nil), id, 3))
			w.refused(availability.ErrFull, "the setting allows three")(w.Accept(ctx, w.session("searching", nil), id, 9))
			w.refused(availability.ErrFull)(w.Reroute(ctx, w.session("pending_payment", other), id, 3))
			w.Equal(3, one[int](w, "SELECT count(*) FROM chat_sessions WHERE mitra_id = $1", id))
			ways, err := w.Unseen(ctx)
			w.NoError(err)
			w.Contains(strings.Join(ways, "\n"), c.unseen)
			if strings.HasPrefix(name, "a table that takes") {
				return // what the triggers and views name is another table
			}
			repaired, err := w.Repair(ctx)
			w.NoError(err)
			w.NotEmpty(repaired)
			w.Equal(3, w.state(id).Sessions)
			w.requireTruth()
		})
	}
}

func TestSessionsThatWentWhereNoTriggerLooksLeaveRoom(t *testing.T) {
	w, ctx := former(t, partitioned)
	id := w.mitra()
	w.exec("CREATE TABLE second PARTITION OF chat_sessions FOR VALUES IN (2)")
	w.exec("INSERT INTO chat_sessions (k, mitra_id, status) SELECT 2, $1::uuid, 'active' FROM generate_series(1, 3)", id)
	w.exec("ALTER TABLE chat_sessions DETACH PARTITION second")
	w.Equal(3, w.state(id).Sessions)
	w.moved(w.Accept(ctx, w.session("searching", nil), id, 3))
}

func TestAMitraWhomNoTriggerSawIsJudgedByItsRow(t *testing.T) {
	w, ctx := setup(t)
	const a, b = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	w.exec(fmt.Sprintf(asReplica, "INSERT INTO mitras (id) VALUES ('"+a+"')"))
	w.exec("INSERT INTO mitras (id) VALUES ($1)", b)
	w.exec(fmt.Sprintf(asReplica, "UPDATE mitras SET is_active = false WHERE id = '"+b+"'"))
	w.True(w.state(b).Active, "no trigger has seen it")
	_, states, err := w.Accept(ctx, w.session("searching", nil), a, 3)
	w.NoError(err)
	w.Equal([]availability.State{w.state(a)}, states)
	w.refused(availability.ErrInactive)(w.Accept(ctx, w.session("searching", nil), b, 3))
	w.refused(availability.ErrInactive)(w.Reroute(ctx, w.session("active", a), b, 3))
}

func TestALoweredLimitAppliesFromItsCommit(t *testing.T) {
	w, ctx := setup(t)
	id := w.mitra()
	w.session("active", id)
	w.exec("UPDATE app_config SET value = '1' WHERE key = 'max_customers_per_mitra'")
	// As who has not heard of it.
	w.refused(availability.ErrFull)(w.Accept(ctx, w.session("searching", nil), id, 3))
	w.refused(availability.ErrFull)(w.Reroute(ctx, w.session("active", w.mitra()), id, 3))

	w.exec("UPDATE app_config SET value = '3' WHERE key = 'max_customers_per_mitra'")
	session := w.session("searching", nil)
	tx := w.begin() // somebody changes the mitra; an accept waits for that
	w.did(tx.Exec(ctx, "SELECT FROM mitra_availability WHERE mitra_id = $1 FOR UPDATE", id))
	accepted := make(chan error, 1)
	go func() { _, _, err := w.Accept(ctx, session, id, 3); accepted <- err }()
	w.awaitLocked()
	w.exec("UPDATE app_config SET value = '1' WHERE key = 'max_customers_per_mitra'")
	w.NoError(tx.Commit(ctx))
	w.ErrorIs(<-accepted, availability.ErrFull)
}

func TestWhileTheLimitMakesNoSenseTheCallersApplies(t *testing.T) {
	w, ctx := setup(t)
	for _, value := range []string{`"soon"`, `null`, `-1`, `1.5`, `1e3`, `100000001`, `99999999999999999999`, `[1]`, `{}`, `true`, "", "3"} {
		id := w.mitra()
		if value == "" {
			w.exec("DELETE FROM app_config")
		} else {
			w.exec(`INSERT INTO app_config VALUES ('max_customers_per_mitra', $1) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value`, value)
		}
		w.moved(w.Accept(ctx, w.session("searching", nil), id, 1))
		w.refused(availability.ErrFull, value)(w.Accept(ctx, w.session("searching", nil), id, 1))
	}
}

func TestATruncateThatCannotBeCountedIsRefused(t *testing.T) {
	w, ctx := setup(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, table := range []string{"chat_sessions", "mitra_online_status"} {
			tx := w.begin()
			w.did(tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL "+level))
			w.did(tx.Exec(ctx, "SELECT FROM chat_sessions")) // its snapshot
			w.session("active", w.mitra())
			_, err := tx.Exec(ctx, "TRUNCATE "+table)
			w.ErrorContains(err, "TRUNCATE of "+table+" in a transaction that is "+level)
			w.NoError(tx.Rollback(ctx))
			w.requireTruth()
		}
	}
}

func TestUnseenNamesTheWaysOfRowsThatNoTriggerSees(t *testing.T) {
	w, ctx := setup(t)
	ways, err := w.Unseen(ctx)
	w.NoError(err)
	w.Empty(ways)
	app := w.Name + "_app"
	w.exec("CREATE ROLE " + app + "; ALTER ROLE " + app + " SET session_replication_role = replica")
	w.exec("ALTER TABLE mitra_online_logs SET UNLOGGED; ALTER TABLE mitra_online_status SET UNLOGGED")
	w.exec("CREATE TABLE statuses () INHERITS (mitra_online_status)")
	w.exec("ALTER TABLE chat_sessions DISABLE TRIGGER availability_delete")
	ways, err = w.Unseen(ctx)
	w.NoError(err)
	w.Len(ways, 4)
	for i, want := range []string{
		"mitra_online_status has 1 partitions or children (statuses)", "mitra_online_status is unlogged",
		"role " + app + " has session_replication_role = replica", "trigger availability_delete on chat_sessions",
	} {
		w.Contains(ways[i], want)
	}
	w.exec("DROP OWNED BY " + app + "; DROP ROLE " + app)
	ways, err = open(t, w.URL+"&options=-c%20session_replication_role%3Dreplica").Unseen(ctx)
	w.NoError(err)
	w.Contains(strings.Join(ways, "\n"), "this connection has session_replication_role = replica")
}

// PostgreSQL runs no trigger for statements on what a subscription brings, also none that is ENABLE
// ALWAYS.
func TestWhatLogicalReplicationBringsCountsAndIsNamed(t *testing.T) {
	t.Parallel()
	server, ctx := pgtest.Start(t, "wal_level=logical", "max_wal_senders=4", "autovacuum=off"), t.Context()
	from, to := server.Database(), server.Database()
	there, _ := on(t, from)
	here, _ := on(t, to)
	for _, w := range []world{there, here} {
		w.NoError(w.Migrate(ctx))
	}
	for _, table := range []string{"mitras", "chat_sessions"} {
		for _, event := range []string{"insert", "update", "delete", "truncate"} {
			here.exec("ALTER TABLE " + table + " ENABLE ALWAYS TRIGGER availability_" + event)
		}
	}
	here.NoError(here.Check(ctx))
	there.exec("CREATE PUBLICATION p FOR TABLE mitras, chat_sessions")
	there.exec("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	c := from.Config().ConnConfig
	here.exec(fmt.Sprintf("CREATE SUBSCRIPTION s CONNECTION 'host=%s user=%s dbname=%s' PUBLICATION p "+
		"WITH (create_slot = false, slot_name = 's', copy_data = false)", c.Host, c.User, from.Name))
	id := there.mitra()
	for range 3 {
		there.session("active", id)
	}
	here.Eventually(func() bool {
		return one[int](here, "SELECT count(*) FROM chat_sessions") == 3
	}, patience, 10*time.Millisecond)
	here.Zero(one[int](here, "SELECT coalesce(max(active_sessions), 0) FROM mitra_availability"), "no trigger has seen it")
	here.refused(availability.ErrFull)(here.Accept(ctx, here.session("searching", nil), id, 3))
	ways, err := here.Unseen(ctx)
	here.NoError(err)
	here.Len(ways, 2)
	for i, table := range []string{"chat_sessions", "mitras"} {
		here.Contains(ways[i], "subscription s writes to "+table)
	}
	here.did(here.Repair(ctx))
	here.Equal(3, here.state(id).Sessions)
	for _, end := range []string{"DISABLE", "SET (slot_name = NONE)"} {
		here.exec("ALTER SUBSCRIPTION s " + end)
	}
	here.exec("DROP SUBSCRIPTION s")
}
