package availability_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// The guarantees of both stores together, on a real PostgreSQL with a real Redis and with a real
// Valkey.

const (
	patience = time.Minute
	never    = 1000 * time.Hour
	isoMS    = "2006-01-02T15:04:05.000Z"
)

// both is a mirror with a leader, and the two stores as other services see them.
type both struct {
	*availability.Mirror
	t      *testing.T
	db     *pgtest.DB
	rdb    *redis.Client
	prefix string
	jan    *janitor.Janitor
}

// onEach runs a test with a Redis, and with a Valkey where there is one, that are its own.
func onEach(t *testing.T, test func(t *testing.T, b *both), fill ...string) {
	t.Helper()
	t.Parallel()
	for name, start := range redistest.Makes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, bothStoresOn(t, start(t).Options(), "", fill...))
		})
	}
}

// bothStoresOn fills the tables, and then seeds a Redis of the test's choice.
func bothStoresOn(t *testing.T, o *redis.Options, prefix string, fill ...string) *both {
	t.Helper()
	b := &both{t: t, db: pgtest.Database(t), prefix: prefix}
	source, err := postgres.Open(t.Context(), b.db.URL, postgres.Timeout(patience))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	require.NoError(t, source.Migrate(t.Context()))
	for _, sql := range fill {
		b.sql(sql)
	}
	open := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.rdb = open(o)
	control, layout, log := open(lease.Options(o)), guard.Layout{Prefix: b.prefix}, slog.New(slog.DiscardHandler)
	b.Mirror, err = availability.New(availability.Config{
		Source: source, Client: b.rdb, Control: control, Layout: layout, Logger: log, Tick: 10 * time.Millisecond,
		ReconcileInterval: never, OfflineInterval: never, HeartbeatInterval: never, // only when a test asks
	})
	require.NoError(t, err)
	reg, err := registry.New(registry.Config{Client: b.rdb, Control: control, Instance: "worker-1", Layout: layout, Logger: log})
	require.NoError(t, err)
	b.jan, err = janitor.New(janitor.Config{
		Client: b.rdb, Control: control, Registry: reg, Sweeps: b.Sweeps(), Logger: log, RedisShare: 1,
	})
	require.NoError(t, err)
	timing := guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}
	_, err = guard.New(b.rdb, b.rdb, layout, timing, "nobody").Tick(t.Context())
	require.NoError(t, err)
	long := time.Now().Add(-10 * time.Hour).UnixMilli() // heartbeats have been heard all that time
	require.NoError(t, b.rdb.HSet(t.Context(), layout.Witness(), "since", long).Err())
	ctx, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(ctx)
	work.Go(reg.Run)
	work.Go(b.Run)
	work.Go(b.jan.Run)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, work.Wait())
	})
	b.eventually(func() bool {
		select {
		case <-b.Ready():
			return true
		default:
			return false
		}
	}, "the mirror is whole")
	b.sweep("availability_reconcile") // the first passes of the term are over
	return b
}

func (b *both) eventually(f func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, f, patience, 5*time.Millisecond, what)
}

func (b *both) sql(statement string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), statement, args...)
	require.NoError(b.t, err)
}

// one returns the only value that a query selects.
func one[T any](b *both, sql string, args ...any) (value T) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql, args...).Scan(&value))
	return value
}

// sweep asks for one pass.
func (b *both) sweep(name string) (report janitor.Report) {
	b.t.Helper()
	b.eventually(func() bool {
		reports, err := b.jan.Sweep(b.t.Context(), janitor.Request{Sweep: name})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			return false // yet
		}
		require.NoError(b.t, err)
		require.Len(b.t, reports, 1)
		report = reports[0]
		return true
	}, "a pass")
	require.Equal(b.t, janitor.Done, report.Outcome, "%+v", report)
	return report
}

// wrong compares the four structures with the service's own tables, which is what the states are
// made of, and names the first difference.
func (b *both) wrong() string {
	ctx, key := context.Background(), func(name string) string { return b.prefix + name }
	rows, err := b.db.Query(ctx, `SELECT m.id::text, coalesce(s.is_online, false), coalesce(s.is_online AND m.is_active, false), m.is_active, (SELECT count(*) FROM chat_sessions c
		WHERE c.mitra_id = m.id AND c.status IN ('active', 'pending_payment')) FROM mitras m LEFT JOIN mitra_online_status s ON s.mitra_id = m.id`)
	require.NoError(b.t, err)
	defer rows.Close()
	all, on, off := 0, 0, 0
	for rows.Next() {
		var id, sessions string
		var signed, online, active bool
		var n int
		require.NoError(b.t, rows.Scan(&id, &signed, &online, &active, &n))
		all++
		sessions = b.rdb.Get(ctx, key("mitra:capacity:"+id)).Val()
		if online {
			on++
		}
		if !active {
			off++
		}
		switch {
		case b.rdb.SIsMember(ctx, key("mitras:online"), id).Val() != online:
			return id + ": online"
		case b.rdb.SIsMember(ctx, key("mitras:deactivated"), id).Val() == active:
			return id + ": deactivated"
		case sessions != one[string](b, "SELECT $1::int::text", n):
			return id + ": capacity " + sessions
		case !signed && b.rdb.Exists(ctx, key("mitra:heartbeat:"+id)).Val() != 0:
			return id + ": is offline, and has a heartbeat"
		}
	}
	require.NoError(b.t, rows.Err())
	if b.rdb.SCard(ctx, key("mitras:online")).Val() != int64(on) || b.rdb.SCard(ctx, key("mitras:deactivated")).Val() != int64(off) ||
		b.rdb.HLen(ctx, key("mitras:version")).Val() != int64(all) {
		return "somebody whom nobody knows"
	}
	return ""
}

// workforce has 200 mitras of every kind, with up to four sessions, running or ended.
var workforce = []string{
	`INSERT INTO mitras (id, is_active) SELECT gen_random_uuid(), i % 7 <> 0 FROM generate_series(1, 200) i`,
	`INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at)
		SELECT id, row_number() OVER () % 3 = 0, now(), now() FROM mitras LIMIT 150`,
	`INSERT INTO chat_sessions (mitra_id, status) SELECT id, s FROM mitras, unnest(ARRAY['active', 'active', 'pending_payment', 'completed']) s
		WHERE random() < 0.5`,
	`INSERT INTO chat_sessions (status) VALUES ('searching')`,
}

func TestASeedIsWhatTheTablesSay(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		require.Empty(t, b.wrong())
		require.Equal(t, int64(one[int](b, "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active")), b.rdb.SCard(t.Context(), b.prefix+"mitras:online").Val())
		require.Equal(t, int64(28), b.rdb.SCard(t.Context(), b.prefix+"mitras:deactivated").Val())
	}, workforce...)
}

func TestAnEmptiedRedisIsFilledAgainAndWhatIsCorruptedConverges(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx := t.Context()
		keys, err := b.rdb.Keys(ctx, "mitra*").Result() // the lease stays: comparisons follow
		require.NoError(t, err)
		require.NoError(t, b.rdb.Del(ctx, keys...).Err())
		b.eventually(func() bool { return b.wrong() == "" && b.rdb.Exists(ctx, b.prefix+"mitras:seeded").Val() == 1 }, "it is seeded again")

		const nobody = "00000000-0000-4000-8000-000000000000"
		anybody := one[string](b, "SELECT mitra_id::text FROM mitra_availability WHERE is_online AND is_active LIMIT 1")
		for _, corrupt := range []func() error{
			func() error { return b.rdb.SAdd(ctx, b.prefix+"mitras:online", nobody).Err() },
			func() error { return b.rdb.SAdd(ctx, b.prefix+"mitras:deactivated", nobody, anybody).Err() },
			func() error { return b.rdb.SRem(ctx, b.prefix+"mitras:online", anybody).Err() },
			func() error { return b.rdb.Set(ctx, b.prefix+"mitra:capacity:"+anybody, -5, 0).Err() },
			func() error { return b.rdb.Del(ctx, b.prefix+"mitra:capacity:"+anybody).Err() },
			func() error { return b.rdb.HDel(ctx, b.prefix+"mitras:version", anybody).Err() },
			func() error { return b.rdb.Del(ctx, b.prefix+"mitras:online").Err() },
		} {
			require.NoError(t, corrupt())
			require.NotEmpty(t, b.wrong())
			b.sweep("availability_reconcile")
			require.Empty(t, b.wrong())
		}
	}, workforce...)
}

func TestAFlushedRedisIsWholeAgainAndNobodyGoesOfflineForTheHeartbeatsThatItLost(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx := t.Context()
		b.sql("UPDATE mitra_online_status SET last_heartbeat_at = now() - interval '1 hour', last_online_at = now() - interval '1 hour'")
		online := one[int](b, "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active")
		free := one[int](b, `SELECT count(*) FROM mitra_availability WHERE is_online AND is_active AND active_sessions < 3`)
		for range 2 {
			require.NoError(t, b.rdb.FlushAll(ctx).Err())
			b.eventually(func() bool { // also in the middle of it an answer is right, whoever gives it
				found, err := b.FindAvailable(ctx, 0)
				require.NoError(t, err)
				require.Len(t, found.Value, free, "from %s", found.From)
				n, err := b.CountOnline(ctx)
				require.NoError(t, err)
				require.Equal(t, online, n.Value, "from %s", n.From)
				return b.rdb.Exists(ctx, "mitras:seeded").Val() == 1 && b.wrong() == ""
			}, "it is whole again")
			b.eventually(func() bool {
				reports, err := b.jan.Sweep(ctx, janitor.Request{Sweep: "availability_offline"})
				return err == nil && reports[0].Outcome == janitor.Held
			}, "it has not listened for long enough")
			require.Equal(t, online, one[int](b, "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active"))
			require.Zero(t, one[int](b, "SELECT count(*) FROM mitra_online_logs"))
		}
	}, workforce...)
}

func TestAHeartbeatReachesItsRowInOnePassAndTheStaleGoOfflineInBothStoresWithOneLogRow(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx := t.Context()
		fresh := one[string](b, "SELECT min(id::text) FROM mitras")
		stale := one[string](b, "SELECT max(id::text) FROM mitras")
		hourAgo := time.Now().Add(-time.Hour).UTC()
		b.sql("UPDATE mitra_online_status SET last_online_at = $1, last_heartbeat_at = $1", hourAgo)
		fallSilent := func() {
			b.sql("UPDATE mitra_online_status SET last_heartbeat_at = $1 WHERE mitra_id = $2 AND last_heartbeat_at <> $1", hourAgo, stale)
			require.NoError(t, b.rdb.Set(ctx, b.prefix+"mitra:heartbeat:"+stale, hourAgo.Format(isoMS), 0).Err())
		}
		fallSilent()
		beat, err := b.Heartbeat(ctx, fresh)
		require.NoError(t, err)
		require.Equal(t, availability.BeatKept, beat)
		b.sweep("availability_heartbeats")
		at := one[time.Time](b, "SELECT last_heartbeat_at FROM mitra_online_status WHERE mitra_id = $1", fresh)
		require.Equal(t, b.rdb.Get(ctx, b.prefix+"mitra:heartbeat:"+fresh).Val(), at.UTC().Format(isoMS))

		b.eventually(func() bool { // a row that somebody holds, such as the mirror, waits for the next pass
			fallSilent() // the feed may just have brought what it had read before
			b.sweep("availability_offline")
			return one[int](b, "SELECT count(*) FROM mitra_online_status WHERE is_online") < 2
		}, "the stale goes offline")
		for range 2 { // another pass finds nobody
			require.Empty(t, b.wrong())
			require.Equal(t, fresh, one[string](b, "SELECT string_agg(mitra_id::text, ',') FROM mitra_online_status WHERE is_online"))
			require.Equal(t, []string{fresh}, b.rdb.SMembers(ctx, b.prefix+"mitras:online").Val())
			require.Equal(t, "offline "+stale, one[string](b, "SELECT string_agg(status || ' ' || mitra_id, ',') FROM mitra_online_logs"))
			b.sweep("availability_offline")
		}
	}, `INSERT INTO mitras (id) SELECT gen_random_uuid() FROM generate_series(1, 2)`,
		`INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at)
			SELECT id, true, now(), now() FROM mitras`)
}

func TestCapacityFollowsEachStepOfASessionInBothStores(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx := t.Context()
		first, other := one[string](b, "SELECT min(id::text) FROM mitras"), one[string](b, "SELECT max(id::text) FROM mitras")
		s1, s2 := one[string](b, "SELECT min(id::text) FROM chat_sessions"), one[string](b, "SELECT max(id::text) FROM chat_sessions")
		done := func(_ availability.Session, err error) error { return err }
		for _, step := range []struct {
			name string
			do   func() error
			want string // sessions of both mitras
			err  error
		}{
			{"accept", func() error { return done(b.Accept(ctx, s1, first)) }, "1 0", nil},
			{"accept another", func() error { return done(b.Accept(ctx, s2, first)) }, "2 0", nil},
			{"ask for a payment", func() error { return done(b.Extend(ctx, s1, false)) }, "2 0", nil},
			{"reroute", func() error { return done(b.Reroute(ctx, s1, other)) }, "1 1", nil},
			{"extend", func() error { return done(b.Extend(ctx, s1, true)) }, "1 1", nil},
			{"end", func() error { return done(b.End(ctx, s1, "completed")) }, "1 0", nil},
			{"end again", func() error { return done(b.End(ctx, s1, "completed")) }, "1 0", nil},
			{"cancel what is over", func() error { return done(b.End(ctx, s1, "cancelled")) }, "1 0", availability.ErrTaken},
			{"expire", func() error { return done(b.End(ctx, s2, "expired")) }, "0 0", nil},
			{"extend what is over", func() error { return done(b.Extend(ctx, s2, true)) }, "0 0", availability.ErrTaken},
		} {
			require.ErrorIs(t, step.do(), step.err, step.name)
			require.Empty(t, b.wrong(), step.name)
			require.Equal(t, step.want, b.rdb.Get(ctx, b.prefix+"mitra:capacity:"+first).Val()+" "+
				b.rdb.Get(ctx, b.prefix+"mitra:capacity:"+other).Val(), step.name)
		}
	}, `INSERT INTO mitras (id) SELECT gen_random_uuid() FROM generate_series(1, 2)`,
		`INSERT INTO chat_sessions (status) VALUES ('searching'), ('searching')`)
}

func TestADeactivationSignsOutAndRefusesHeartbeatsWithinOneWrite(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx := t.Context()
		id := one[string](b, `SELECT min(m.id::text) FROM mitra_online_status s JOIN mitras m ON m.id = s.mitra_id
			WHERE is_online AND is_active`)
		b.sql("INSERT INTO auth_sessions (mitra_id) VALUES ($1), ($1)", id)
		for _, step := range []struct {
			do       func(context.Context, string) (availability.State, error)
			beat     availability.Beat
			signedIn int
		}{
			{b.Online, availability.BeatKept, 2}, {b.Deactivate, availability.BeatDeactivated, 0},
			{b.Activate, availability.BeatKept, 0},
		} {
			_, err := step.do(ctx, id)
			require.NoError(t, err)
			beat, err := b.Heartbeat(ctx, id)
			require.NoError(t, err)
			require.Equal(t, step.beat, beat)
			require.Empty(t, b.wrong())
			require.Equal(t, step.signedIn, one[int](b, "SELECT count(*) FROM auth_sessions WHERE revoked_at IS NULL"))
		}
	}, workforce...)
}

func TestCustomersShareASnapshotThatGoesWithTheSettingsOfWhichItIs(t *testing.T) {
	onEach(t, func(t *testing.T, b *both) {
		ctx, key := t.Context(), "availability:snapshot"
		for most, count := range map[int]int{
			1: one[int](b, "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active AND active_sessions < 1"),
			0: 0,
		} {
			require.NoError(t, b.PutSetting(ctx, "max_customers_per_mitra", most))
			var polls sync.WaitGroup
			for range 100 {
				polls.Go(func() {
					a, err := b.Snapshot(ctx)
					if err != nil || a.Value != (availability.Snapshot{Available: count > 0, Count: count}) {
						t.Errorf("%+v %v", a, err)
					}
				})
			}
			polls.Wait()
			b.eventually(func() bool { // the announcement of the setting drops it once more
				_, _ = b.Snapshot(ctx)
				left := b.rdb.PTTL(ctx, key).Val()
				return b.rdb.Get(ctx, key).Val() == fmt.Sprintf(`{"available":%t,"count":%d}`, count > 0, count) &&
					left > 0 && left <= 10*time.Second
			}, "other services read it")
		}
	}, workforce...)
}
