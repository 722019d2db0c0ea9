package availability_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

const (
	patience = time.Minute
	never    = 1000 * time.Hour
	isoMS    = "2006-01-02T15:04:05.000Z"
)

// both is a mirror with a leader, and the two stores as other services see them.
type both struct {
	*require.Assertions
	*availability.Mirror
	t   *testing.T
	ctx context.Context
	db  *pgtest.DB
	rdb *redis.Client
	jan *janitor.Janitor
}

// bothStores fills the tables, and then seeds a server.
func bothStores(t *testing.T, o *redis.Options, fill string) *both {
	t.Helper()
	b := &both{Assertions: require.New(t), t: t, ctx: t.Context(), db: pgtest.Database(t)}
	source, err := postgres.Open(b.ctx, b.db.URL, postgres.Timeout(patience))
	b.NoError(err)
	t.Cleanup(source.Close)
	b.NoError(source.Migrate(b.ctx))
	b.sql(fill)
	open := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.rdb = open(o)
	control, log := open(lease.Options(o)), slog.New(slog.DiscardHandler)
	b.Mirror, err = availability.New(availability.Config{
		Source: source, Client: b.rdb, Control: control, Logger: log, Tick: 10 * time.Millisecond,
		ReconcileInterval: never, OfflineInterval: never, HeartbeatInterval: never, // only when a test asks
	})
	b.NoError(err)
	reg, err := registry.New(registry.Config{Client: b.rdb, Control: control, Instance: "worker-1", Logger: log})
	b.NoError(err)
	b.jan, err = janitor.New(janitor.Config{
		Client: b.rdb, Control: control, Registry: reg, Sweeps: b.Sweeps(), Logger: log, RedisShare: 1,
	})
	b.NoError(err)
	timing := guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}
	_, err = guard.New(b.rdb, b.rdb, guard.Layout{}, timing, "nobody").Tick(b.ctx)
	b.NoError(err)
	long := time.Now().Add(-10 * time.Hour).UnixMilli() // heartbeats have been heard all that time
	b.redis("HSET", guard.Layout{}.Witness(), "since", long)
	ctx, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(ctx)
	for _, run := range []func(context.Context) error{reg.Run, b.Run, b.jan.Run} {
		work.Go(run)
	}
	t.Cleanup(func() {
		cancel()
		b.NoError(work.Wait())
	})
	<-b.Ready()
	b.sweep("availability_reconcile") // the first passes of the term are over
	return b
}

func (b *both) eventually(f func() bool, what string) {
	b.t.Helper()
	b.Eventually(f, patience, 5*time.Millisecond, what)
}

func (b *both) redis(command ...any) {
	b.t.Helper()
	b.NoError(b.rdb.Do(b.ctx, command...).Err())
}

func (b *both) sql(statement string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.ctx, statement, args...)
	b.NoError(err)
}

// one returns the only value that a query selects.
func one[T any](b *both, sql string, args ...any) (value T) {
	b.t.Helper()
	b.NoError(b.db.QueryRow(b.ctx, sql, args...).Scan(&value))
	return value
}

// pass asks for one pass.
func (b *both) pass(name string) (report janitor.Report) {
	b.t.Helper()
	b.eventually(func() bool {
		reports, err := b.jan.Sweep(b.ctx, janitor.Request{Sweep: name})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			return false // yet
		}
		b.NoError(err)
		report = reports[0]
		return true
	}, "a pass")
	return report
}

func (b *both) sweep(name string) {
	b.t.Helper()
	report := b.pass(name)
	b.Equal(janitor.Done, report.Outcome, "%+v", report)
}

func (b *both) wrong() []string { return pgtest.Differences(b.ctx, b.db.Pool, b.rdb, "", 0) }

// beats sends a heartbeat, which gets this answer.
func (b *both) beats(id string, want availability.Beat) {
	b.t.Helper()
	beat, err := b.Heartbeat(b.ctx, id)
	b.NoError(err)
	b.Equal(want, beat)
}

// workforce has 200 mitras of every kind, with up to four sessions, running or ended, or none: at
// least a dozen who are online.
const workforce = `
INSERT INTO mitras (id, is_active) SELECT gen_random_uuid(), i % 7 <> 0 FROM generate_series(1, 200) i;
INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at)
  SELECT id, row_number() OVER () % 3 = 0, now(), now() FROM mitras LIMIT 150;
INSERT INTO chat_sessions (mitra_id, status)
  SELECT id, s FROM mitras, unnest(ARRAY['active', 'active', 'pending_payment', 'completed']) s WHERE random() < 0.5
  AND id NOT IN (SELECT mitra_id FROM mitra_online_status WHERE is_online ORDER BY mitra_id LIMIT 12);
INSERT INTO chat_sessions (status) VALUES ('searching'), ('searching')`

// The guarantees of both stores together, on a real PostgreSQL with a real Redis and with a real
// Valkey.
func TestBothStoresTogether(t *testing.T) {
	t.Parallel()
	for name, start := range redistest.Makes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bothStores(t, start(t).Options(), workforce)
			b.Empty(b.wrong(), "a seed is what the tables say")
			b.Equal(int64(28), b.rdb.SCard(b.ctx, "mitras:deactivated").Val())
			b.capacityFollowsEachStep()
			b.aDeactivationSignsOut()
			b.customersShareASnapshot()
			b.theStaleGoOffline()
			b.whatIsCorruptedConverges()
			b.aFlushedRedisIsWholeAgain()
		})
	}
}

const idle = `SELECT min(a.mitra_id::text) FROM mitra_availability a JOIN mitra_online_status USING (mitra_id)
	WHERE a.is_online AND a.is_active AND active_sessions = 0`

func (b *both) capacityFollowsEachStep() {
	first := one[string](b, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
	other := one[string](b, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
	s1 := one[string](b, "SELECT min(id::text) FROM chat_sessions WHERE status = 'searching'")
	s2 := one[string](b, "SELECT max(id::text) FROM chat_sessions WHERE status = 'searching'")
	b.eventually(func() bool { return len(b.wrong()) == 0 }, "the feed brings them")
	has := func(sessions string, refusal error) func(availability.Session, error) {
		return func(_ availability.Session, err error) {
			b.t.Helper()
			b.ErrorIs(err, refusal)
			b.Empty(b.wrong())
			b.Equal(sessions, b.rdb.Get(b.ctx, "mitra:capacity:"+first).Val()+" "+b.rdb.Get(b.ctx, "mitra:capacity:"+other).Val())
		}
	}
	has("1 0", nil)(b.Accept(b.ctx, s1, first))
	has("2 0", nil)(b.Accept(b.ctx, s2, first))
	has("2 0", nil)(b.Extend(b.ctx, s1, false))
	has("1 1", nil)(b.Reroute(b.ctx, s1, other))
	has("1 1", nil)(b.Extend(b.ctx, s1, true))
	has("1 0", nil)(b.End(b.ctx, s1, "completed"))
	has("1 0", nil)(b.End(b.ctx, s1, "completed"))
	has("1 0", availability.ErrTaken)(b.End(b.ctx, s1, "cancelled"))
	has("0 0", nil)(b.End(b.ctx, s2, "expired"))
	has("0 0", availability.ErrTaken)(b.Extend(b.ctx, s2, true))
}

func (b *both) aDeactivationSignsOut() {
	id := one[string](b, idle)
	b.sql("INSERT INTO auth_sessions (mitra_id) VALUES ($1), ($1)", id)
	for _, step := range []struct {
		do       func(context.Context, string) (availability.State, error)
		beat     availability.Beat
		signedIn int
	}{
		{b.Online, availability.BeatKept, 2}, {b.Deactivate, availability.BeatDeactivated, 0},
		{b.Activate, availability.BeatKept, 0},
	} {
		_, err := step.do(b.ctx, id)
		b.NoError(err)
		b.beats(id, step.beat)
		b.Empty(b.wrong())
		b.Equal(step.signedIn, one[int](b, "SELECT count(*) FROM auth_sessions WHERE revoked_at IS NULL"))
	}
}

func (b *both) customersShareASnapshot() {
	const key = "availability:snapshot"
	for most, where := range []string{"false", "active_sessions < 1"} {
		count := one[int](b, "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active AND "+where)
		b.NoError(b.PutSetting(b.ctx, "max_customers_per_mitra", most))
		var polls sync.WaitGroup
		for range 100 {
			polls.Go(func() {
				a, err := b.Snapshot(b.ctx)
				if err != nil || a.Value != (availability.Snapshot{Available: count > 0, Count: count}) {
					b.t.Errorf("%+v %v", a, err)
				}
			})
		}
		polls.Wait()
		b.eventually(func() bool { // the announcement of the setting drops it once more
			_, _ = b.Snapshot(b.ctx)
			left := b.rdb.PTTL(b.ctx, key).Val()
			return b.rdb.Get(b.ctx, key).Val() == fmt.Sprintf(`{"available":%t,"count":%d}`, count > 0, count) &&
				left > 0 && left <= 10*time.Second
		}, "other services read it")
	}
	b.NoError(b.PutSetting(b.ctx, "max_customers_per_mitra", 3))
}

// A heartbeat reaches its row in one pass, and the stale go offline in both stores with one log
// row.
func (b *both) theStaleGoOffline() {
	hourAgo := time.Now().Add(-time.Hour).UTC()
	stale := one[string](b, idle)
	fallSilent := func() {
		b.sql("UPDATE mitra_online_status SET last_online_at = $1, last_heartbeat_at = $1 WHERE mitra_id = $2 AND last_heartbeat_at <> $1",
			hourAgo, stale)
		b.redis("SET", "mitra:heartbeat:"+stale, hourAgo.Format(isoMS))
	}
	fallSilent()
	fresh := one[string](b, strings.Replace(idle, "min", "max", 1))
	b.beats(fresh, availability.BeatKept)
	b.sweep("availability_heartbeats")
	at := one[time.Time](b, "SELECT last_heartbeat_at FROM mitra_online_status WHERE mitra_id = $1", fresh)
	b.Equal(b.rdb.Get(b.ctx, "mitra:heartbeat:"+fresh).Val(), at.UTC().Format(isoMS))

	const online = "SELECT count(*) FROM mitra_online_status WHERE is_online"
	before := one[int](b, online)
	b.sql("DELETE FROM mitra_online_logs")
	b.eventually(func() bool { // a row that somebody holds, such as the mirror, waits for the next pass
		fallSilent() // the feed may just have brought what it had read before
		b.sweep("availability_offline")
		return one[int](b, online) < before
	}, "the stale goes offline")
	for range 2 { // another pass finds nobody
		b.Empty(b.wrong())
		b.Equal(before-1, one[int](b, online))
		b.Equal("offline "+stale, one[string](b, "SELECT string_agg(status || ' ' || mitra_id, ',') FROM mitra_online_logs"))
		b.sweep("availability_offline")
	}
}

func (b *both) whatIsCorruptedConverges() {
	keys, err := b.rdb.Keys(b.ctx, "mitra*").Result() // the lease stays: comparisons follow
	b.NoError(err)
	b.NoError(b.rdb.Del(b.ctx, keys...).Err())
	b.eventually(func() bool { return len(b.wrong()) == 0 }, "it is seeded again")

	const nobody = "00000000-0000-4000-8000-000000000000"
	anybody := one[string](b, idle)
	for _, corrupt := range [][]any{
		{"SADD", "mitras:online", nobody}, {"SADD", "mitras:deactivated", nobody, anybody},
		{"SREM", "mitras:online", anybody}, {"SET", "mitra:capacity:" + anybody, -5},
		{"DEL", "mitra:capacity:" + anybody}, {"HDEL", "mitras:version", anybody}, {"DEL", "mitras:online"},
	} {
		b.redis(corrupt...)
		b.NotEmpty(b.wrong())
		b.sweep("availability_reconcile")
		b.Empty(b.wrong())
	}
}

// Nobody goes offline for the heartbeats that it lost.
func (b *both) aFlushedRedisIsWholeAgain() {
	b.sql("DELETE FROM mitra_online_logs")
	b.sql("UPDATE mitra_online_status SET last_heartbeat_at = now() - interval '1 hour', last_online_at = now() - interval '1 hour'")
	const working = "SELECT count(*) FROM mitra_availability WHERE is_online AND is_active"
	online, free := one[int](b, working), one[int](b, working+" AND active_sessions < 3")
	for range 2 {
		b.redis("FLUSHALL")
		b.eventually(func() bool { // also in the middle of it an answer is right, whoever gives it
			found, err := b.FindAvailable(b.ctx, 0)
			b.NoError(err)
			b.Len(found.Value, free, "from %s", found.From)
			n, err := b.CountOnline(b.ctx)
			b.NoError(err)
			b.Equal(online, n.Value, "from %s", n.From)
			return len(b.wrong()) == 0
		}, "it is whole again")
		b.eventually(func() bool {
			return b.pass("availability_offline").Outcome == janitor.Held
		}, "it has not listened for long enough")
		b.Equal(online, one[int](b, working))
		b.Zero(one[int](b, "SELECT count(*) FROM mitra_online_logs"))
	}
}
