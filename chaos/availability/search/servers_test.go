package search

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// template is the database that each episode begins with, present the one that it works on, and
// backup a copy that was made of it.
const template, present, backup = "search_template", "search_present", "search_backup"

// watch is what the oracle has PostgreSQL write down itself, and the clock of replicas whose
// connections set search.skew.
const watch = `
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
  SELECT pg_catalog.clock_timestamp() +
         coalesce(nullif(pg_catalog.current_setting('search.skew', true), ''), '0')::interval $$;
CREATE TABLE search_flips (mitra uuid, at timestamptz, back boolean NOT NULL DEFAULT false);
CREATE FUNCTION search_flip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO search_flips (mitra, at) VALUES (NEW.mitra_id, pg_catalog.clock_timestamp());
  RETURN NULL;
END $$;
CREATE TRIGGER search_flip AFTER UPDATE ON mitra_online_status FOR EACH ROW
  WHEN (OLD.is_online AND NOT NEW.is_online AND pg_catalog.current_query() ~ 'availability_auto_offline\(')
  EXECUTE FUNCTION search_flip();
CREATE FUNCTION search_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE search_flips SET back = true WHERE mitra = NEW.mitra_id;
  RETURN NULL;
END $$;
CREATE TRIGGER search_back AFTER UPDATE ON mitra_online_status FOR EACH ROW
  WHEN (NOT OLD.is_online AND NEW.is_online AND pg_catalog.current_query() ~ 'availability_(revive|set_online)\(')
  EXECUTE FUNCTION search_back();
CREATE TABLE search_limit (most integer);
INSERT INTO search_limit VALUES (3);
CREATE TABLE search_excess (mitra uuid, sessions integer, most integer);
CREATE FUNCTION search_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  busy integer;
  allowed integer;
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.mitra_id = NEW.mitra_id AND OLD.status IN ('active', 'pending_payment') THEN
    RETURN NULL;
  END IF;
  SELECT count(*) INTO busy FROM chat_sessions
    WHERE mitra_id = NEW.mitra_id AND status IN ('active', 'pending_payment');
  SELECT most INTO allowed FROM search_limit;
  IF busy > allowed THEN
    INSERT INTO search_excess VALUES (NEW.mitra_id, busy, allowed);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER search_count AFTER UPDATE ON chat_sessions FOR EACH ROW
  WHEN (NEW.mitra_id IS NOT NULL AND NEW.status IN ('active', 'pending_payment')
    AND pg_catalog.current_query() ~ 'availability_(accept|reroute)\(')
  EXECUTE FUNCTION search_count();
CREATE TABLE search_children (LIKE chat_sessions INCLUDING DEFAULTS);`

// servers are what the episodes of one lane are played on, one after the other.
type servers struct {
	pg      *pgtest.Server
	admin   *pgxpool.Pool // to another database than the episodes'
	redis   *redistest.Server
	rdb     *redis.Client
	slowest time.Duration // look
	served  atomic.Int64  // see serve
}

// lossy has a crash lose what was committed last.
var lossy = []string{
	"synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0", "autovacuum=off",
	"restart_after_crash=on",
}

func startServers(t *testing.T) *servers {
	s := &servers{pg: pgtest.Start(t, lossy...), redis: redistest.Start(t, "--enable-debug-command", "yes")}
	var err error
	s.admin, err = pgxpool.New(t.Context(), s.pg.URL("postgres")+"&synchronous_commit=on")
	require.NoError(t, err)
	t.Cleanup(s.admin.Close)
	t.Cleanup(func() { t.Log("the slowest look took", s.slowest.Round(time.Millisecond)) })
	s.rdb = redis.NewClient(&redis.Options{Addr: s.redis.Addr(), MaxRetries: 100, MinRetryBackoff: -1, PoolSize: roomy})
	t.Cleanup(func() { _ = s.rdb.Close() })
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { s.serve(ctx) })
	t.Cleanup(func() { stop(); ended.Wait() })
	require.NoError(t, s.run(t.Context(), "CREATE DATABASE "+template))
	url := s.pg.URL(template)
	source, err := postgres.Open(t.Context(), url, postgres.Timeout(time.Minute))
	require.NoError(t, err)
	require.NoError(t, source.Migrate(t.Context()))
	source.Close()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), watch)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return s
}

// atOnce is how long servers take to answer a call on a machine that has time for them.
const atOnce = 10 * time.Millisecond

// serve counts the time in which both servers answer at once, until ctx ends. Slower answers count
// as if they had been given at once.
func (s *servers) serve(ctx context.Context) {
	for ctx.Err() == nil {
		<-time.After(atOnce)
		begun := time.Now()
		_, err := s.admin.Exec(ctx, "SELECT 1")
		if errors.Join(err, s.rdb.Ping(ctx).Err()) == nil {
			s.served.Add(int64(atOnce + min(time.Since(begun), atOnce)))
		}
	}
}

// patience reports whether time is over. Time for which a busy machine keeps the servers from
// answering does not count, up to ten times d.
func (s *servers) patience(d time.Duration) (over func() bool) {
	begun, served := time.Now(), s.served.Load()
	return func() bool {
		return time.Duration(s.served.Load()-served) > d || time.Since(begun) > 10*d
	}
}

// run runs statements one after the other, each until PostgreSQL answers: it may be recovering.
func (s *servers) run(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, sql := range statements {
		for {
			_, err := s.admin.Exec(ctx, sql)
			if err == nil {
				break
			}
			if !away(err) {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
	}
	return nil
}

// copyDatabase replaces a database by a copy of another. Whoever is connected to either loses the
// connection.
func (s *servers) copyDatabase(ctx context.Context, from, to string) error {
	hold := func(name string, allow bool) string {
		return fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", name, allow)
	}
	return s.run(ctx, hold(from, false),
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+from+"'",
		"DROP DATABASE IF EXISTS "+to+" WITH (FORCE)",
		fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", to, from), hold(from, true))
}
