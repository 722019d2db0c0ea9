package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

func TestMigrateNamesWhatNoTriggerSeesAndPutsStatesRight(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	exec := func(sql string) {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	migrates := func() string {
		code, out, said := says(t, "migrate", "--database-url="+db.URL)
		require.Equal(t, cli.ExitOK, code, said)
		return out
	}
	exec(`CREATE TABLE chat_sessions (id uuid NOT NULL DEFAULT gen_random_uuid(), mitra_id uuid, k int NOT NULL DEFAULT 1,
		status text NOT NULL DEFAULT 'searching') PARTITION BY LIST (k)`)
	require.NotContains(t, migrates(), "no trigger sees this")
	const id = "11111111-1111-4111-8111-111111111111"
	exec("INSERT INTO mitras (id) VALUES ('" + id + "')")
	exec("CREATE TABLE second (LIKE chat_sessions INCLUDING DEFAULTS)")
	exec("INSERT INTO second (mitra_id, status, k) SELECT '" + id + "', 'active', 2 FROM generate_series(1, 3)")
	exec("ALTER TABLE chat_sessions ATTACH PARTITION second FOR VALUES IN (2)")
	out := migrates()
	for _, want := range []string{
		"put right: 1 states that were not what the tables say, such as that of " + id +
			" (online f, active t, sessions 0; now online f, active t, sessions 3)\n",
		"no trigger sees this: chat_sessions has 1 partitions or children (second): ",
		"the database has all that replicas need\n",
	} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, migrates(), "put right: 1")
}
