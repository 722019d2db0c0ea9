package availability

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Durations of the replicas: the shortest that two busy cores carry.
const (
	leaseTTL = 3 * time.Second
	beatTTL  = 3 * time.Second
	sweep    = 500 * time.Millisecond
)

// layout is that of an empty AVAILABILITY_PREFIX.
var layout = guard.Layout{}

// world is what one row works on.
type world struct {
	*testing.T
	row    row
	began  time.Time
	binary string

	pg    *pgtest.Server
	name  string        // of the database
	db    *pgxpool.Pool // of the test, which makes raw changes by it
	redis *redistest.Server
	rdb   *redis.Client

	judged bool
	*people
	settings map[string]string
	replicas map[string]*harness.Replica // by instance; the present process of each
	logs     map[string]string           // of processes that were killed
}

func newWorld(t *testing.T, binary string, r row) *world {
	w := &world{
		T: t, row: r, began: time.Now(), binary: binary,
		replicas: map[string]*harness.Replica{}, logs: map[string]string{},
	}
	w.redis = redistest.Start(t, history.AppendOnly()...)
	w.rdb = redis.NewClient(&redis.Options{Addr: w.redis.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = w.rdb.Close() })

	w.pg = pgtest.Start(t, "track_commit_timestamp=on")
	db := w.pg.Database()
	w.db, w.name = db.Pool, db.Name
	source, err := postgres.Open(t.Context(), db.URL)
	require.NoError(t, err)
	require.NoError(t, source.Migrate(t.Context()))
	source.Close()
	w.exec(recorder)
	w.exec(`UPDATE app_config SET value = '3' WHERE key IN ('stale_after_seconds', 'max_customers_per_mitra');
		UPDATE app_config SET value = '1' WHERE key = 'heartbeat_cadence_seconds'`)
	rows, err := w.db.Query(t.Context(), `INSERT INTO mitras SELECT FROM generate_series(1, $1) RETURNING id::text`,
		crowd)
	require.NoError(t, err)
	var ids []string
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	w.people = newPeople(t, newService(t), w.db, ids)

	w.settings = map[string]string{
		"DATABASE_URL": db.URL + "&pool_max_conns=8", "JWT_HS256_SECRET": secret, "HTTP_ADDR": "127.0.0.1:0",
		"LOG_FORMAT": "json", "MITRA_AUTO_OFFLINE_SWEEP_SECONDS": seconds(sweep),
		"VALKEY_ONLINE_MIRROR_SWEEP_SECONDS": "2", "HEARTBEAT_MIRROR_INTERVAL_SECONDS": "1",
		"AVAILABILITY_LEASE_TTL": leaseTTL.String(), "AVAILABILITY_REDIS_SHARE": "1",
		"HEARTBEAT_INTERVAL": "500ms", "HEARTBEAT_TTL": beatTTL.String(),
	}
	return w
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// start starts a replica, or another process of it, behind a proxy of its own to Redis.
func (w *world) start(id string) *harness.Replica {
	w.Helper()
	r := harness.Launch(w.T, w.binary, id, harness.NewProxy(w.T, w.redis.Addr()), w.settings)
	w.replicas[id] = r
	harness.Eventually(w.T, "replica "+id+" serves", func() bool {
		r.HTTP = r.Said("serving HTTP", "addr")
		return r.HTTP != "" || !r.Runs()
	})
	require.True(w, r.Runs(), r.Log())
	w.serveAll()
	return r
}

// serveAll has clients call those that run.
func (w *world) serveAll() {
	var addresses []string
	for _, id := range sorted(w.replicas) {
		if r := w.replicas[id]; r.Runs() && r.HTTP != "" {
			addresses = append(addresses, r.HTTP)
		}
	}
	if len(addresses) > 0 {
		w.serve(addresses...)
	}
}

// leader waits until a replica that runs leads, and returns it with another.
func (w *world) leader() (leader, other *harness.Replica) {
	w.Helper()
	harness.Eventually(w.T, "a replica leads", func() bool {
		holder, _, _ := strings.Cut(w.rdb.Get(w.Context(), layout.Lease()).Val(), "/")
		leader = w.replicas[holder]
		return leader != nil && leader.Runs()
	})
	for _, id := range sorted(w.replicas) {
		if r := w.replicas[id]; r != leader {
			other = r
		}
	}
	return leader, other
}

// kill kills a replica and starts it anew.
func (w *world) kill(r *harness.Replica) {
	w.Helper()
	r.Kill()
	w.again(r)
}

// again starts a replica anew that has ended.
func (w *world) again(r *harness.Replica) {
	w.Helper()
	<-r.Done()
	w.logs[r.ID] += r.Log()
	w.start(r.ID)
}

// meddle does something to Redis by the test's own hand, which the oracle does not judge.
func (w *world) meddle(what string, do func(ctx context.Context, p redis.Pipeliner)) {
	w.Helper()
	_, err := w.rdb.TxPipelined(w.Context(), func(p redis.Pipeliner) error {
		p.Set(w.Context(), history.FaultKey, what, 0)
		do(w.Context(), p)
		return nil
	})
	require.NoError(w, err)
}

func (w *world) flush() {
	w.Helper()
	w.meddle("FLUSHALL", func(ctx context.Context, p redis.Pipeliner) { p.FlushAll(ctx) })
}

// count is what a statement counts, which is tried until Postgres answers.
func (w *world) count(sql string, args ...any) (n int) {
	w.Helper()
	harness.Eventually(w.T, "Postgres answers", func() bool {
		return w.db.QueryRow(w.Context(), sql, args...).Scan(&n) == nil
	})
	return n
}

// flips is how many mitras went offline for their silence so far.
func (w *world) flips() int {
	return w.count("SELECT count(*) FROM chaos_history WHERE by LIKE '%availability_auto_offline(%' AND NOT online")
}

// works waits until mitras go offline for their silence, and calls succeed: all is as it should be.
func (w *world) works() {
	w.Helper()
	flips, done := w.flips(), w.done()
	harness.Eventually(w.T, "the silent go offline, and work is done", func() bool {
		return w.flips() > flips && w.done() > done+50
	})
	w.says("works")
}

func (w *world) says(what string) {
	w.Helper()
	w.Logf("%s: %s", time.Since(w.began).Round(time.Millisecond), what)
}

// run is what is the same in each row: replicas serve a crowd that works and falls silent, 16
// workers hammer (short: six); then comes the fault; then all of it works as before. At rest both
// stores agree, and the judges go through all that was.
func (w *world) run() {
	defer func() {
		if w.Failed() && !w.judged { // whatever was waited for in vain: what came of it?
			w.judge()
		}
	}()
	w.start("one")
	w.start("two")
	w.people.begin(w.Context())
	ctx, stop := context.WithCancel(w.Context())
	hammering := 16
	if testing.Short() {
		hammering = 6 // so that two cores carry the rows beside other tests
	}
	living := w.people.run(ctx, hammering)
	defer living.Wait()
	defer w.die()
	defer stop()
	w.works()

	w.row.fault(w)
	w.says("fault over")
	w.works()
	w.die()
	died := time.Now()
	w.calmDown()
	w.rests()
	w.Logf("the dead are offline %s after their end", time.Since(died).Round(10*time.Millisecond))
	stop()
	living.Wait()
	w.judge()
}
