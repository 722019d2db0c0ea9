package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/availability"
)

const (
	// the feed waits this long for a table lock; other calls that keep the mirror, and callers before
	// they join those who wait, for any lock
	feedWaits        = 200 * time.Millisecond
	keepWaits        = time.Second
	lockedWaits      = 10 * time.Millisecond
	lockNotAvailable = "55P03"
	nameKey          = "rollcall.name"
	// the end of the feed's connection ends a life
	forEver = 100 * 365 * 24 * time.Hour
)

func pool(ctx context.Context, c *pgxpool.Config, conns int32, waits time.Duration) (*pgxpool.Pool, error) {
	c = c.Copy()
	c.MaxConns, c.MinConns, c.MinIdleConns = conns, min(c.MinConns, conns), min(c.MinIdleConns, conns)
	if waits == feedWaits || waits == keepWaits {
		c.MinConns, c.MinIdleConns, c.MaxConnLifetime, c.MaxConnIdleTime = 0, 0, forEver, forEver
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[nameKey] = rand.Text()
		_, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", waits.Milliseconds()))
		return err
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// life is another after whatever brings other commits and may leave the feed's connection alone:
// the tables are created anew, with their partitions, as a restore or a TRUNCATE does, or
// availability_repair; another timeline, behind a pooler. Anything else, such as a restart, a
// recovery, or another database of that name, ends the connection. It takes no lock.
const life = `to_hex(hashtextextended(concat_ws(' ', left(pg_walfile_name(pg_current_wal_lsn()), 8),
	(SELECT string_agg(concat_ws(' ', r.oid::text, pg_relation_filenode(r.oid),
			(SELECT string_agg(concat(inhrelid, '.', pg_relation_filenode(inhrelid)), ' ' ORDER BY inhrelid)
			   FROM pg_inherits WHERE inhparent = r.oid)), ',' ORDER BY t.name)
	   FROM unnest(ARRAY['mitra_availability', 'availability_lives', 'mitras', 'mitra_online_status',
			'chat_sessions']) AS t (name),
	        LATERAL (SELECT to_regclass(t.name)::oid) AS r (oid))), 0))`

// feedSQL reads states that were not visible at a cursor: its Xmin, Snapshot and Life. changed_xid
// identifies a whole transaction, so a snapshot decides whether it is visible. An id that this
// server has not reached yet comes from a restore and is ignored.
const feedSQL = `
	WITH now AS MATERIALIZED (
		SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin, pg_snapshot_xmax(pg_current_snapshot()) AS xmax,
		       pg_current_snapshot()::text AS snapshot, nullif($2::text, '')::pg_snapshot AS since,
		       clock_timestamp() AS at, ` + life + ` AS life)
	SELECT now.xmin, now.life, now.snapshot, now.at, %s
	  FROM now LEFT JOIN (
		SELECT * FROM %s
		 WHERE CASE $3::text WHEN '' THEN false
		       WHEN (SELECT life FROM now) THEN changed_xid >= $1::xid8 AND changed_xid < (SELECT xmax FROM now)
		            AND NOT pg_visible_in_snapshot(changed_xid, (SELECT since FROM now))
		       ELSE true END) s ON true`

// unseenColumns omits those from mitra_online_status.
const unseenColumns = `s.mitra_id::text, s.version, s.is_online, s.is_active, greatest(s.active_sessions, 0),
	NULL::timestamptz, NULL::timestamptz`

// Feed returns each change once, when committed, however long other transactions stay open. After a
// restart of the server, a crash recovery, a change of the primary, a restore, or any other end of
// its connection, it returns everything: transactions may have been lost, and their ids reused. It
// refuses a standby.
//
// While somebody has locked mitra_online_status, states come without their last sign of life, and
// again later: the cursor does not move.
func (s *Source) Feed(ctx context.Context, since availability.Cursor) (
	states []availability.State, now availability.Cursor, err error,
) {
	err = again(ctx, longer*s.timeout, "feed", func(ctx context.Context) error {
		return s.feed.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			states, now, err = s.fed(ctx, c.Conn(), since, columns, "mitra_availability_state")
			if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != lockNotAvailable {
				return err
			}
			unseen, then, unseenErr := s.fed(ctx, c.Conn(), since, unseenColumns, "mitra_availability")
			if unseenErr != nil || then.Life != since.Life || then.Connection != since.Connection {
				return err
			}
			states, now = unseen, since
			return nil
		})
	})
	return states, now, err
}

func (s *Source) fed(ctx context.Context, c *pgx.Conn, since availability.Cursor, columns, from string) (
	states []availability.State, now availability.Cursor, err error,
) {
	now.Connection, _ = c.PgConn().CustomData()[nameKey].(string)
	if since.Life != "" && since.Connection != now.Connection {
		since.Life = "another"
	}
	begun, at := time.Now(), time.Time{}
	rows, err := c.Query(ctx, fmt.Sprintf(feedSQL, columns, from), since.Xmin, since.Snapshot, since.Life)
	if err != nil {
		return nil, now, err
	}
	states, err = scan(rows, nil, &now.Xmin, &now.Life, &now.Snapshot, &at)
	if err == nil {
		s.clock.Learn(begun, at)
	}
	return states, now, err
}
