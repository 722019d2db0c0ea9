package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrLacking says that the schema is not whole. Migrate makes what no migration has made yet. What
// was dropped or disabled since has to be put back by hand: availability migrate names it.
var ErrLacking = errors.New("postgres: the schema lacks")

// schemaLacks names what migrations make and is not there. A trigger that is disabled is not.
const schemaLacks = `
WITH wanted (kind, name, missing) AS (
	SELECT 'relation', name, to_regclass(name) IS NULL FROM unnest(ARRAY['mitras', 'mitra_online_status',
		'mitra_online_logs', 'chat_sessions', 'auth_sessions', 'app_config',
		'mitra_availability', 'mitra_availability_state', 'mitra_availability_truth']) AS t (name)
	UNION ALL
	SELECT 'function', name, to_regproc(name) IS NULL FROM unnest(ARRAY['availability_set_online',
		'availability_set_active', 'availability_accept', 'availability_end', 'availability_extend',
		'availability_reroute', 'availability_auto_offline', 'availability_mirror_heartbeats', 'availability_outbid',
		'availability_repair']) AS t (name)
	UNION ALL
	SELECT 'function', proname || ' as migration 4 makes it, which waits for nobody', prosrc NOT LIKE '%SKIP LOCKED%'
		FROM pg_proc WHERE oid = to_regproc('availability_auto_offline')
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
		WHERE name <> 'availability_named' OR base = 'mitra_online_status')
SELECT coalesce(array_agg(kind || ' ' || name ORDER BY kind, name), '{}') FROM wanted WHERE missing`

// Check tells whether the schema is there, for those who may not migrate. ErrLacking with the names
// of what is not.
func (s *Source) Check(ctx context.Context) error {
	var lacking []string
	err := s.within(ctx, "check", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, schemaLacks).Scan(&lacking)
	})
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%w: %s", ErrLacking, strings.Join(lacking, ", "))
	}
	return err
}

// Stat is how the connections are used, but for the feed's.
func (s *Source) Stat() *pgxpool.Stat { return s.pool.Stat() }
