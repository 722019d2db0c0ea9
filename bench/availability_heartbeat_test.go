package bench

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// pingers are the workers that send heartbeats at the same time, each the next one when it has its
// answer.
const pingers = 16

// heartbeats is what a heartbeat costs beside a bare SET.
func heartbeats(r *rig) {
	r.section("Availability: a heartbeat")
	r.say("%d workers, each with one heartbeat at a time, of %s mitras who are online. The floor is a SET of the same key and length. "+
		"The peer is a script that does nothing but that SET: what is above it, deciding costs.", pingers, many(r.mitras))
	r.onBoth((*rig).heartbeats)
	r.heartbeatsAskNoPostgres()
}

func (r *rig) heartbeats() {
	n, ctx := r.beats, r.t.Context()
	m := r.seeded(crew(r.mitras))
	value := time.Now().UTC().Format(isoMS)
	bare := redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	require.NoError(r.t, bare.Load(ctx, m.client).Err())
	_, err := m.Heartbeat(ctx, mitra(1)) // the server knows both scripts then
	require.NoError(r.t, err)
	id := func(i int) string { return mitra(i*2%r.mitras | 1) } // one that is active
	var late atomic.Int64
	run := func(step func(i int) error) func() cost {
		return func() cost {
			return r.measure(n, func() {
				workers(pingers, n, func(i int) {
					if err := step(i); err != nil {
						r.t.Error(err)
					}
				})
			})
		}
	}
	results := r.pairs(
		way{name: "SET", kind: floor, run: run(func(i int) error { return m.client.Set(ctx, heartbeatKey+id(i), value, 0).Err() })},
		way{name: "a script that is a SET", kind: peer, run: run(func(i int) error {
			return bare.Run(ctx, m.client, []string{heartbeatKey + id(i)}, value).Err()
		})},
		way{name: "heartbeat", kind: ours, run: run(func(i int) error {
			for _, err := m.Heartbeat(ctx, id(i)); err != nil; _, err = m.Heartbeat(ctx, id(i)) {
				late.Add(1) // on a busy machine: it is sent again
			}
			return nil
		})},
	)
	r.say("### %s", r.server())
	r.costs(results)
	r.promiseMore("heartbeats of 16 workers: rate, × a bare SET, "+r.server(), "%.2f", 1/results[2].wallRatio, 0.6)
	asked := map[string]int64{}
	for _, c := range results[2].costs[len(results[2].costs)-1].calls {
		asked[c.name] = c.count
	}
	require.GreaterOrEqual(r.t, asked["evalsha"], int64(n))
	require.LessOrEqual(r.t, asked["evalsha"], int64(n)+late.Load(), "one round trip each")
	require.Zero(r.t, asked["eval"])
}

// heartbeatsAskNoPostgres counts what a database does meanwhile.
func (r *rig) heartbeatsAskNoPostgres() {
	ctx, n := r.t.Context(), r.beats/10
	s := pgtest.Start(r.t, "autovacuum=off")
	db, watch := s.Database(), s.Database()
	source := r.staff(db, 100)
	r.clear()
	m := r.mirror(source)
	m.stop()
	db.Reset()
	// Connections tell what they did when they end, at the latest.
	operations := func() (n int64) {
		_, err := watch.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, db.Name)
		require.NoError(r.t, err)
		r.until(func() bool {
			var left int
			require.NoError(r.t, watch.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = $1),
				xact_commit + xact_rollback + tup_returned + tup_fetched + tup_inserted + tup_updated + tup_deleted + blks_hit + blks_read
				FROM pg_stat_database WHERE datname = $1`, db.Name).Scan(&left, &n))
			return left == 0
		})
		return n
	}
	before := operations()
	require.Positive(r.t, before)
	workers(pingers, n, func(i int) {
		beat, err := m.Heartbeat(ctx, mitra(1+i%idle))
		for err != nil {
			beat, err = m.Heartbeat(ctx, mitra(1+i%idle))
		}
		if beat != availability.BeatKept {
			r.t.Error(beat)
		}
	})
	after := operations()
	require.Equal(r.t, before, after)
	r.say("%s heartbeats of mitras of a PostgreSQL: %d transactions, rows and blocks more in its pg_stat_database.", many(n), after-before)
	r.promise("operations of PostgreSQL during heartbeats", "%.0f", float64(after-before), 0)
}
