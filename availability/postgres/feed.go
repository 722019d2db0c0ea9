package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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

const columns = `s.mitra_id::text, s.version, s.is_online, s.is_active, s.active_sessions, s.seen, s.judged`

// A row without a state has nil fields.
type row struct {
	id             *string
	version        *int64
	online, active *bool
	sessions       *int
	seen, judged   *time.Time
}

func (r *row) fields() []any {
	return []any{&r.id, &r.version, &r.online, &r.active, &r.sessions, &r.seen, &r.judged}
}

func (r *row) appendTo(states []availability.State) []availability.State {
	if r.id == nil {
		return states
	}
	st := availability.State{
		ID: *r.id, Version: *r.version, Online: *r.online, Active: *r.active, Sessions: *r.sessions,
	}
	if r.seen != nil {
		st.Seen = r.seen.UTC().Truncate(time.Millisecond)
	}
	if r.judged != nil {
		st.Judged = r.judged.UTC().Truncate(time.Millisecond)
	}
	return append(states, st)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func query(
	ctx context.Context,
	from querier,
	sql string,
	args []any,
	more ...any,
) ([]availability.State, error) {
	rows, err := from.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return scan(rows, nil, more...)
}

func scan(rows pgx.Rows, each func(id string), more ...any) (states []availability.State, err error) {
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(append(more, r.fields()...)...); err != nil {
			return nil, err
		}
		states = r.appendTo(states)
		if each != nil && r.id != nil {
			each(*r.id)
		}
	}
	return states, rows.Err()
}

// Page implements [availability.Source].
func (s *Source) Page(ctx context.Context, after string, limit int) (states []availability.State, err error) {
	err = again(ctx, longer*s.timeout, "page", func(ctx context.Context) error {
		states, err = query(ctx, s.keep, `SELECT `+columns+` FROM mitra_availability_state s
			WHERE s.mitra_id > $1 OR $1 IS NULL ORDER BY s.mitra_id LIMIT $2`, []any{idOf(after), limit})
		return err
	})
	return states, err
}

// States implements [availability.Source]. It skips ids that are not UUIDs.
func (s *Source) States(ctx context.Context, ids []string) (states []availability.State, err error) {
	err = again(ctx, s.timeout, "states", func(ctx context.Context) error {
		states, err = query(ctx, s.keep, `SELECT `+columns+` FROM mitra_availability_state s
			WHERE s.mitra_id = ANY ($1)`, []any{idsOf(ids)})
		return err
	})
	return states, err
}

// Repair counts all running sessions; meanwhile, changes of states that it found wrong have to
// wait.
func (s *Source) Repair(ctx context.Context) (repaired []availability.Repaired, err error) {
	err = again(ctx, longer*s.timeout, "repair", func(ctx context.Context) error {
		return s.patiently(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT id::text, was, became FROM availability_recount()`)
			if err != nil {
				return err
			}
			repaired, err = pgx.CollectRows(rows, pgx.RowToStructByPos[availability.Repaired])
			return err
		})
	})
	return repaired, err
}

// Outbid gives a mitra that never existed a state that is offline and not active.
func (s *Source) Outbid(ctx context.Context, those []availability.Versioned) (
	states []availability.State, err error,
) {
	ids, versions := known(those, func(v availability.Versioned) (string, int64) { return v.ID, v.Version })
	err = again(ctx, s.timeout, "outbid", func(ctx context.Context) error {
		return s.patiently(ctx, func(tx pgx.Tx) (err error) {
			states, err = query(ctx, tx,
				`SELECT `+columns+` FROM availability_outbid($1, $2) s`, []any{ids, versions})
			return err
		})
	})
	return states, err
}

// Revive skips mitras who went online, or were set offline again, since.
func (s *Source) Revive(ctx context.Context, ids []string) (states []availability.State, err error) {
	err = again(ctx, s.timeout, "revive", func(ctx context.Context) error {
		states, err = query(ctx, s.keep, `SELECT `+columns+` FROM availability_revive($1) s`, []any{idsOf(ids)})
		return err
	})
	return states, err
}

// Available takes a limit that is not positive for none.
func (s *Source) Available(ctx context.Context, cutoff time.Time, most, limit int) (
	states []availability.State, err error,
) {
	err = s.within(ctx, "available", func(ctx context.Context, pool *pgxpool.Pool) error {
		states, err = query(ctx, pool, `SELECT `+columns+` FROM mitra_availability_state s
			WHERE s.is_online AND s.is_active AND s.active_sessions < $1 AND ($2::timestamptz IS NULL OR s.seen >= $2)
			ORDER BY s.active_sessions, s.mitra_id LIMIT CASE WHEN $3::int > 0 THEN $3::int END`,
			[]any{most, momentOf(cutoff), limit})
		return err
	})
	return states, err
}

// CountOnline implements [availability.Source].
func (s *Source) CountOnline(ctx context.Context) (n int, err error) {
	err = s.within(ctx, "count online", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT count(*) FROM mitra_availability WHERE is_online AND is_active`).Scan(&n)
	})
	return n, err
}

// idOf is invalid if id is not a UUID.
func idOf(id string) (u pgtype.UUID) {
	if len(id) == len("00000000-0000-0000-0000-000000000000") {
		_ = u.Scan(id) // stays invalid on error
	}
	return u
}

func idsOf(ids []string) []pgtype.UUID {
	known, _ := known(ids, func(id string) (string, bool) { return id, true })
	return known
}

// known returns the ids that are UUIDs, each with its value.
func known[T, V any](those []T, of func(T) (string, V)) ([]pgtype.UUID, []V) {
	ids, values := make([]pgtype.UUID, 0, len(those)), make([]V, 0, len(those))
	for _, one := range those {
		id, value := of(one)
		if u := idOf(id); u.Valid {
			ids, values = append(ids, u), append(values, value)
		}
	}
	return ids, values
}

func momentOf(at time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: at, Valid: !at.IsZero()}
}
