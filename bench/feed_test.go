package bench

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// staff fills a database with mitras who are online, active, and were just heard of.
func (r *rig) staff(db *pgtest.DB, n int) *postgres.Source {
	ctx := r.Context()
	source, err := postgres.Open(ctx, db.URL, postgres.Timeout(time.Minute))
	require.NoError(r, err)
	r.Cleanup(source.Close)
	require.NoError(r, source.Migrate(ctx))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = mitra(i)
	}
	r.sql(db, "INSERT INTO mitras (id, is_active) SELECT id, true FROM unnest($1::uuid[]) id", ids)
	r.sql(db, "INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at) SELECT id, true, now(), now() FROM mitras")
	require.NoError(r, source.PutSetting(ctx, "stale_after_seconds", 24*60*60)) // nobody is silent here
	return source
}

func (r *rig) sql(db *pgtest.DB, statement string, args ...any) {
	_, err := db.Exec(r.Context(), statement, args...)
	require.NoError(r, err)
}

// fromRawSQL is how late readers see what somebody does by psql.
func fromRawSQL(r *rig) {
	ctx := r.Context()
	r.section("Availability: from raw SQL to Redis")
	db := pgtest.Start(r).Database()
	source := r.staff(db, r.mitras)
	r.clear()
	m := r.mirror(source)
	defer m.stop()
	var took latencies
	for i := range r.raw {
		id, online := mitra(i%r.mitras), i/r.mitras%2 != 0
		wait.For(ctx, rand.N(250*time.Millisecond)) // any moment between two looks at the feed
		r.sql(db, "UPDATE mitra_online_status SET is_online = $2 WHERE mitra_id = $1", id, online)
		begun := time.Now()
		r.until(func() bool {
			is, err := r.rdb.SIsMember(ctx, onlineKey, id).Result()
			require.NoError(r, err)
			return is == online
		})
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	r.say("%d mitras of %s are set offline by an UPDATE, one after the other. From its reply to the moment when Redis says so:", r.raw, many(r.mitras))
	var row []string
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99, 1} {
		row = append(row, brief(quantile(took, q)))
	}
	r.table([]string{"p10", "p50", "p90", "p99", "max"}, [][]string{row})
	r.promise("raw SQL is seen in Redis, p99, s", "%.2f", quantile(took, 0.99).Seconds(), 0.5)
}
