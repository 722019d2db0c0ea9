package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A Redis that was emptied while a mitra is set offline knows nothing of that: Postgres decides.
func TestAHeartbeatThatRedisKeepsWithoutKnowingTheMitraIsKeptInPostgres(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := rigOn(t, server.Options(), "", migrated.Database(t))
	id := r.onlineMitra("a")
	ctx := t.Context()
	r.exec("UPDATE mitra_online_status SET last_heartbeat_at = '2020-01-01' WHERE mitra_id = $1", id)
	// Nobody can seed meanwhile.
	require.NoError(t, r.rdb.HSet(ctx, "mitras:fed", "by", "somebody", "until", time.Now().Add(2900*time.Millisecond).UnixMilli()).Err())
	require.NoError(t, r.rdb.Del(ctx, "mitras:seeded").Err())
	r.plays("204 {a} POST /mitra/heartbeat")
	require.True(t, one[bool](r, "SELECT last_heartbeat_at > '2025-01-01' FROM mitra_online_status WHERE mitra_id = $1", id))
}
