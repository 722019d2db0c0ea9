package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrLacking means that the schema is incomplete. Migrate creates what no migration has created
// yet. Anything dropped or disabled since must be restored by hand.
var ErrLacking = errors.New("postgres: the schema lacks")

// schemaLacks counts a disabled trigger as missing.
const schemaLacks = `
WITH wanted (kind, name, missing) AS (
	SELECT 'relation', name, to_regclass(name) IS NULL FROM unnest(ARRAY['mitras', 'mitra_online_status',
		'mitra_online_logs', 'chat_sessions', 'auth_sessions', 'app_config',
		'mitra_availability', 'availability_lives', 'availability_fleets', 'mitra_availability_state', 'mitra_availability_truth']) AS t (name)
	UNION ALL
	SELECT 'function', name, to_regproc(name) IS NULL FROM unnest(ARRAY['availability_set_online',
		'availability_set_active', 'availability_session', 'availability_auto_offline', 'availability_mirror_heartbeats',
		'availability_outbid', 'availability_repair', 'availability_recount', 'availability_fleet',
		'availability_of_sign_in', 'availability_revive']) AS t (name)
	UNION ALL
	SELECT 'view', format('mitra_availability_truth that reads %s: it reads another table, which had that name', base),
		NOT EXISTS (SELECT FROM pg_rewrite r
			JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
			WHERE r.ev_class = to_regclass('mitra_availability_truth') AND d.refobjid = to_regclass(base))
		FROM unnest(ARRAY['mitras', 'mitra_online_status', 'chat_sessions']) AS t (base)
		WHERE to_regclass('mitra_availability_truth') IS NOT NULL AND to_regclass(base) IS NOT NULL
	UNION ALL
	SELECT 'constraint', format('on mitra_online_status (mitra_id) that is not deferrable, in place of %1$I; run: '
			'ALTER TABLE mitra_online_status DROP CONSTRAINT %1$I, ADD UNIQUE (mitra_id)', c.conname), true
		FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attname = 'mitra_id'
		WHERE c.conrelid = to_regclass('mitra_online_status') AND c.contype IN ('u', 'p') AND c.condeferrable
			AND c.conkey = ARRAY[a.attnum]
	UNION ALL
	SELECT 'trigger', name || ' on ' || base, NOT EXISTS (SELECT FROM pg_trigger
			WHERE tgrelid = to_regclass(base) AND tgname = name AND tgenabled IN ('O', 'A'))
		FROM unnest(ARRAY['mitras', 'mitra_online_status', 'chat_sessions']) AS b (base),
			unnest(ARRAY['availability_insert', 'availability_update', 'availability_delete',
				'availability_truncate', 'availability_named']) AS t (name)
		WHERE name <> 'availability_named' OR base = 'mitra_online_status'
	UNION ALL
	SELECT 'trigger', 'availability_sign_in on auth_sessions', NOT EXISTS (SELECT FROM pg_trigger
		WHERE tgrelid = to_regclass('auth_sessions') AND tgname = 'availability_sign_in'
			AND tgenabled IN ('O', 'A'))
	UNION ALL
	SELECT 'trigger', 'availability_unjudged on mitra_availability', NOT EXISTS (SELECT FROM pg_trigger
		WHERE tgrelid = to_regclass('mitra_availability') AND tgname = 'availability_unjudged'
			AND tgenabled IN ('O', 'A'))
	UNION ALL
	SELECT 'column', 'display_name of mitras', NOT EXISTS (SELECT FROM pg_attribute
		WHERE attrelid = to_regclass('mitras') AND attname = 'display_name' AND NOT attisdropped))
SELECT coalesce(array_agg(kind || ' ' || name ORDER BY kind, name), '{}') FROM wanted WHERE missing`

// Check is for those who may not migrate. ErrLacking lists what is missing.
func (s *Source) Check(ctx context.Context) error {
	var lacking []string
	err := s.within(ctx, "check", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, schemaLacks).Scan(&lacking)
	})
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%w: %s", ErrLacking, strings.Join(lacking, ", "))
	}
	return err
}

// unseen finds ways to change rows without firing statement triggers.
const unseen = `
WITH RECURSIVE tables (base, rel, child) AS (
	SELECT name, to_regclass(name)::oid, false
		FROM unnest(ARRAY['mitras', 'mitra_online_status', 'chat_sessions']) AS t (name)
	UNION
	SELECT t.base, i.inhrelid, true FROM tables t JOIN pg_inherits i ON i.inhparent = t.rel),
found (way) AS (
	SELECT format('%s has %s partitions or children (%s): rows that are written to one by its own name, or come or go with it',
			base, count(*), array_to_string((array_agg(rel::regclass::text ORDER BY rel::regclass::text))[1:3], ', '))
		FROM tables WHERE child GROUP BY base
	UNION ALL
	SELECT format('subscription %s writes to %s: rows that logical replication brings', s.subname, r.srrelid::regclass)
		FROM tables t JOIN pg_subscription_rel r ON r.srrelid = t.rel JOIN pg_subscription s ON s.oid = r.srsubid
	UNION ALL
	SELECT format('%s is unlogged: rows that a crash of the server removes', rel::regclass)
		FROM tables JOIN pg_class c ON c.oid = rel WHERE c.relpersistence = 'u'
	UNION ALL
	SELECT format('%s has session_replication_role = replica: rows that it writes',
			coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(current_database())))
		FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c (setting)
			LEFT JOIN pg_roles r ON r.oid = s.setrole
		WHERE c.setting = 'session_replication_role=replica'
			AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
	UNION ALL
	SELECT 'this connection has session_replication_role = replica: rows that it writes'
		WHERE current_setting('session_replication_role') = 'replica')
SELECT coalesce(array_agg(way ORDER BY way), '{}') FROM found`

// Unseen also lists what the schema lacks.
func (s *Source) Unseen(ctx context.Context) (ways []string, err error) {
	err = s.within(ctx, "unseen", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, unseen).Scan(&ways)
	})
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx); errors.Is(err, ErrLacking) {
		ways = append(ways, err.Error())
	} else if err != nil {
		return nil, err
	}
	return ways, nil
}

// Stat is of the callers' connections, in both halves.
type Stat struct {
	Open, Busy, Most int32
	Waits            int64 // for a connection
	Waited           time.Duration
}

// Ping asks PostgreSQL for an answer, on a connection that no caller uses.
func (s *Source) Ping(ctx context.Context) error { return again(ctx, s.timeout, "ping", s.keep.Ping) }

// Stat excludes the connections of the feed and of others that keep the mirror.
func (s *Source) Stat() (all Stat) {
	for _, pool := range []*pgxpool.Pool{s.pool, s.waiting} {
		st := pool.Stat()
		all.Open += st.TotalConns()
		all.Busy += st.AcquiredConns()
		all.Most += st.MaxConns()
		all.Waits += st.EmptyAcquireCount()
		all.Waited += st.EmptyAcquireWaitTime()
	}
	return all
}
