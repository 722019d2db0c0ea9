package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestWithoutRedisAHeartbeatIsAnsweredByWhatPostgresKnows(t *testing.T) {
	t.Parallel()
	db := migrated.Database(t)
	source, err := postgres.Open(t.Context(), db.URL, postgres.Timeout(patience))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	a := alone(t, source)
	beat := func(id string) (code int, problem, from string) {
		w := asked(t.Context(), a, asMitra(id), "POST", "/api/v1/mitra/heartbeat", "", "")
		var p struct{ Type string }
		_ = json.Unmarshal(w.Body.Bytes(), &p) // a 204 has none
		_, problem, _ = strings.Cut(p.Type, "#")
		return w.Code, problem, w.Header().Get("Availability-Source")
	}
	var id string
	require.NoError(t, db.QueryRow(t.Context(),
		"INSERT INTO mitras DEFAULT VALUES RETURNING id::text").Scan(&id))
	exec := func(sql string) {
		_, err := db.Exec(t.Context(), sql, id)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		name, sql, of string
		code          int
		problem, from string
	}{
		{"nobody knows it", "SELECT $1::uuid", nobody, 404, "not-found", ""},
		{"it was never online", "SELECT $1::uuid", id, 409, "not-online", ""},
		{"it is online", "INSERT INTO mitra_online_status (mitra_id, is_online) VALUES ($1, true)", id, 204,
			"", "postgres"},
		{"the source has a later one, by a clock that is ahead",
			"UPDATE mitra_online_status SET last_heartbeat_at = now() + interval '1 hour' WHERE mitra_id = $1", id, 204, "", "postgres"},
		{"it went offline", "UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", id, 409,
			"not-online", ""},
		{"it is deactivated", "UPDATE mitras SET is_active = false WHERE id = $1", id, 403, "deactivated",
			""},
	} {
		exec(c.sql)
		code, problem, from := beat(c.of)
		require.Equal(t, []any{c.code, c.problem, c.from}, []any{code, problem, from}, c.name)
	}

	// Locked rows are not stored, and so not answered as stored.
	exec("UPDATE mitras SET is_active = true WHERE id = $1")
	exec("UPDATE mitra_online_status SET is_online = true, last_heartbeat_at = now() WHERE mitra_id = $1")
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM mitra_online_status WHERE mitra_id = $1 FOR UPDATE", id)
	require.NoError(t, err)
	code, problem, _ := beat(id)
	require.Equal(t, []any{503, "unavailable"}, []any{code, problem})
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestARedisThatTakesNoWritesDoesNotSayWhoMayBeat(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := rigOn(t, server.Options(), "", migrated.Database(t))
	offline, gone := r.onlineMitra("offline"), r.onlineMitra("gone")
	require.NoError(t, r.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	r.exec("UPDATE mitra_online_status SET is_online = false WHERE mitra_id = $1", offline)
	r.exec("UPDATE mitras SET is_active = false WHERE id = $1", gone)
	require.True(t, r.rdb.SIsMember(t.Context(), "mitras:online", offline).Val(), "Redis knows nothing of it")
	r.plays(`
		409 {offline} POST /mitra/heartbeat -> not-online
		403 {gone} POST /mitra/heartbeat -> deactivated`)
}
