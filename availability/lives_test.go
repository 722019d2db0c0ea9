package availability_test

import (
	"context"
	"log/slog"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// A process of Postgres is killed, as by the OOM killer: it recovers, without its last commits,
// whose versions it gives again.
func TestNoWriteIsIgnoredAfterACrashRecoveryThatLostCommits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Start(t, "synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0",
		"restart_after_crash=on", "autovacuum=off").Database()
	source, err := postgres.Open(ctx, db.URL)
	require.NoError(t, err)
	t.Cleanup(source.Close)
	require.NoError(t, source.Migrate(ctx))
	var untouched, written string
	for _, id := range []*string{&untouched, &written} {
		require.NoError(t, db.QueryRow(ctx, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text").Scan(id))
	}
	_, err = db.Exec(ctx, "CHECKPOINT")
	require.NoError(t, err)

	o := redistest.Shared(t).Options()
	rdb, control := redis.NewClient(o), redis.NewClient(lease.Options(o))
	t.Cleanup(func() { _, _ = rdb.Close(), control.Close() })
	m, err := availability.New(availability.Config{Source: source, Client: rdb, Control: control,
		Layout: guard.Layout{Prefix: redistest.Prefix(t)}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	running, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(running)
	work.Go(m.Run)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, work.Wait())
	})
	<-m.Ready()
	// Otherwise it stores a commit as soon as a page of the log is full.
	var walwriter int
	require.NoError(t, db.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&walwriter))
	require.NoError(t, syscall.Kill(walwriter, syscall.SIGSTOP))
	for _, id := range []string{untouched, written} {
		_, err = m.Online(ctx, id)
		require.NoError(t, err)
	}
	at := m.Health().FeedAt
	b := both{t: t}
	b.eventually(func() bool { return m.Health().FeedAt.After(at) }, "the feed is past them")

	require.NoError(t, syscall.Kill(walwriter, syscall.SIGKILL))
	b.eventually(func() bool { _, err := m.Deactivate(ctx, written); return err == nil }, "Postgres answers again")
	// The writer outbids Redis at once, or the feed does if the writer's connection ended.
	b.eventually(func() bool {
		beat, err := m.Heartbeat(ctx, written)
		return err == nil && beat == availability.BeatDeactivated
	}, "that was acknowledged")
	b.eventually(func() bool {
		a, err := m.Status(ctx, untouched)
		h := m.Health()
		return err == nil && a.From == availability.FromValkey && !a.Value.Online && h.Behind == 0 && h.FeedError == ""
	}, "Redis is outbid")
}

func TestAHeartbeatByEitherWayIsKnownOnTheOther(t *testing.T) {
	b := bothStores(t, workforce...)
	ctx := t.Context()
	id := one[string](b, `SELECT min(m.id::text) FROM mitra_online_status s JOIN mitras m ON m.id = s.mitra_id
		WHERE is_online AND is_active`)
	_, err := b.Online(ctx, id)
	require.NoError(t, err)
	b.sql("UPDATE mitra_online_status SET last_heartbeat_at = '2020-01-01', last_online_at = '2020-01-01' WHERE mitra_id = $1", id)
	key := b.prefix + "mitra:heartbeat:" + id
	require.NoError(t, b.rdb.Set(ctx, key, "2020-01-01T00:00:00.000Z", 0).Err())
	require.NoError(t, b.rdb.HSet(ctx, b.prefix+"mitras:condemned", id, 1).Err())
	beat, err := b.HeartbeatAtSource(ctx, id)
	require.NoError(t, err)
	require.Equal(t, availability.BeatKept, beat)
	b.eventually(func() bool {
		return b.rdb.Get(ctx, key).Val() > "2025" && !b.rdb.HExists(ctx, b.prefix+"mitras:condemned", id).Val()
	}, "the feed brings it, and takes an older mark away")
	beat, err = b.Heartbeat(ctx, id)
	require.NoError(t, err)
	require.Equal(t, availability.BeatKept, beat)
	b.sql("UPDATE mitra_online_status SET last_heartbeat_at = '2020-01-01' WHERE mitra_id = $1", id)
	b.sweep("availability_heartbeats")
	require.True(t, one[bool](b, "SELECT last_heartbeat_at > '2025-01-01' FROM mitra_online_status WHERE mitra_id = $1", id))
}

func TestATruncateThatNoTriggerSawIsRightSoon(t *testing.T) {
	b := bothStores(t, workforce...)
	fresh := one[string](b, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
	b.sql("INSERT INTO chat_sessions (mitra_id, status) SELECT $1, 'active' FROM generate_series(1, 3)", fresh)
	capacity := func() string { return b.rdb.Get(t.Context(), b.prefix+"mitra:capacity:"+fresh).Val() }
	b.eventually(func() bool { return capacity() == "3" }, "Redis has it")
	b.sql("DO $$ BEGIN SET LOCAL session_replication_role = replica; TRUNCATE chat_sessions; END $$")
	b.eventually(func() bool { return capacity() == "0" }, "nobody has a session")
	b.eventually(func() bool { return b.wrong() == "" }, "all is as the tables say")
}

func TestALifeThatBeginsWhileRedisIsAwayIsRepairedMeanwhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := bothStoresOn(t, server.Options(), "")
	id := one[string](b, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
	is := func(from availability.Origin, sessions int) bool {
		a, err := b.Status(t.Context(), id)
		return err == nil && a.From == from && a.Value.Sessions == sessions
	}
	b.eventually(func() bool { return is(availability.FromValkey, 0) }, "Redis has the mitra")
	server.Kill()
	b.eventually(func() bool { return b.Health().FeedError != "" && is(availability.FromPostgres, 0) }, "Redis is away")

	b.sql("CREATE TABLE archive (LIKE chat_sessions INCLUDING ALL)")
	b.sql("INSERT INTO archive (mitra_id, status) SELECT $1, 'active' FROM generate_series(1, 3)", id)
	b.sql("ALTER TABLE archive INHERIT chat_sessions")
	waiting := one[string](b, "INSERT INTO chat_sessions DEFAULT VALUES RETURNING id::text")
	_, err := b.Accept(t.Context(), waiting, id)
	require.ErrorIs(t, err, availability.ErrFull, "sessions are counted in their table")
	b.eventually(func() bool { return is(availability.FromPostgres, 3) }, "the source repairs its states")
	server.Restart()
	b.eventually(func() bool { return is(availability.FromValkey, 3) }, "Redis has that as well")
}
