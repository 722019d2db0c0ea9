package pgtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// tables reads each state, and whether it equals the service's own tables, without the schema's
// views. Moments are those of Redis' clock.
const tables = `
SELECT coalesce(a.mitra_id, m.id)::text,
  coalesce(a.is_online, false), coalesce(a.is_online AND a.is_active, false), coalesce(a.is_active, false),
  coalesce(a.active_sessions, 0), coalesce(a.version, 0),
  (coalesce(s.is_online, false), coalesce(m.is_active, false), (SELECT count(*) FROM chat_sessions c
    WHERE c.mitra_id = coalesce(a.mitra_id, m.id) AND c.status IN ('active', 'pending_payment')))
    IS NOT DISTINCT FROM (a.is_online, a.is_active, a.active_sessions::bigint),
  coalesce(to_char(date_trunc('milliseconds', greatest(s.last_heartbeat_at, s.last_online_at) - $1::interval)
    AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '')
FROM mitra_availability a FULL JOIN mitras m ON m.id = a.mitra_id
LEFT JOIN mitra_online_status s ON s.mitra_id = coalesce(a.mitra_id, m.id)`

// Differences returns in what a mirror differs from the service's own tables, and the states from
// either. ahead is how far PostgreSQL's clock is ahead of Redis'.
func Differences(
	ctx context.Context, db *pgxpool.Pool, rdb *redis.Client, prefix string, ahead time.Duration,
) (found []string) {
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	rows, err := db.Query(ctx, tables, ahead)
	if err != nil {
		return []string{err.Error()}
	}
	known := map[string]bool{}
	var id, seen string
	var keeps, online, active, same bool
	var sessions, version int
	row := []any{&id, &keeps, &online, &active, &sessions, &version, &same, &seen}
	_, err = pgx.ForEachRow(rows, row, func() error {
		known[id] = true
		if !same {
			note("%s: the state is not what the tables say", id)
		}
		pipe := rdb.TxPipeline()
		on := pipe.SIsMember(ctx, prefix+"mitras:online", id)
		off := pipe.SIsMember(ctx, prefix+"mitras:deactivated", id)
		n, v := pipe.Get(ctx, prefix+"mitra:capacity:"+id), pipe.HGet(ctx, prefix+"mitras:version", id)
		at := pipe.Get(ctx, prefix+"mitra:heartbeat:"+id)
		_, _ = pipe.Exec(ctx) // each has its error
		const state = "online %t, active %t, sessions %v at version %v"
		want := fmt.Sprintf(state, online, active, sessions, version)
		got := fmt.Sprintf(state, on.Val(), !off.Val(), n.Val(), v.Val())
		if got != want {
			note("%s: Redis has %s; PostgreSQL %s", id, got, want)
		}
		if keeps && at.Val() < seen || !keeps && at.Err() != redis.Nil { //nolint:errorlint // it is returned as it is
			note("%s: heartbeat %q (%v), PostgreSQL has %q, online %t", id, at.Val(), at.Err(), seen, online)
		}
		return nil
	})
	if err != nil {
		note("%v", err)
	}
	for _, id := range slices.Concat(
		rdb.SMembers(ctx, prefix+"mitras:online").Val(), rdb.SMembers(ctx, prefix+"mitras:deactivated").Val(),
		rdb.HKeys(ctx, prefix+"mitras:version").Val(),
	) {
		if !known[id] {
			note("%s: PostgreSQL does not know it", id)
		}
	}
	if rdb.Exists(ctx, prefix+"mitras:seeded").Val() == 0 {
		note("the mirror is not whole")
	}
	return found
}
