package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// staff fills a database with mitras who are online, active, and were just heard of.
func (r *rig) staff(db *pgtest.DB, n int) *postgres.Source {
	ctx := r.t.Context()
	source, err := postgres.Open(ctx, db.URL, postgres.Timeout(time.Minute))
	require.NoError(r.t, err)
	r.t.Cleanup(source.Close)
	require.NoError(r.t, source.Migrate(ctx))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = mitra(i)
	}
	r.sql(db, "INSERT INTO mitras (id, is_active) SELECT id, true FROM unnest($1::uuid[]) id", ids)
	r.sql(db, "INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at, last_heartbeat_at) SELECT id, true, now(), now() FROM mitras")
	require.NoError(r.t, source.PutSetting(ctx, "stale_after_seconds", 24*60*60)) // nobody is silent here
	return source
}

func (r *rig) sql(db *pgtest.DB, statement string, args ...any) {
	_, err := db.Exec(r.t.Context(), statement, args...)
	require.NoError(r.t, err)
}

// walls is the table of what takes no Redis.
func (p *paper) walls(results []result) {
	var rows [][]string
	for _, w := range results {
		wall := time.Duration(w.medianOf(func(c cost) float64 { return float64(c.wall) }))
		rows = append(rows, []string{w.name, string(w.kind), brief(wall), brief(w.costs[0].perEntry(wall)), fmt.Sprintf("%.2f", w.wallRatio)})
	}
	p.table([]string{"way", "", "wall", "per entry", "× floor"}, rows)
}

// timed is measure without Redis.
func timed(n int, work func()) cost {
	begun := time.Now()
	work()
	return cost{n: n, wall: time.Since(begun)}
}

// acceptAndEnd is what the triggers cost those who change sessions.
func acceptAndEnd(r *rig) {
	r.section("Availability: a session is accepted, and ended")
	r.say("The same two statements, each a transaction, one after the other; the floor with the triggers off. " +
		"Through the client as a service has it, and in a loop inside the server, where nothing else is in the way.")
	r.accepting("nothing synced", 2.2, 2.2)
	r.accepting("synced to the disk", 1.2, 0, "fsync=on", "full_page_writes=on")
}

func (r *rig) accepting(how string, limit, inside float64, settings ...string) {
	ctx, n := r.t.Context(), r.accepts
	s := pgtest.Start(r.t, append(settings, "shared_buffers=128MB", "max_wal_size=4GB")...)
	bare, full := s.Database(), s.Database()
	sources := map[*pgtest.DB]*postgres.Source{bare: r.staff(bare, r.mitras), full: r.staff(full, r.mitras)}
	for _, table := range []string{"mitras", "mitra_online_status", "chat_sessions"} {
		r.sql(bare, "ALTER TABLE "+table+" DISABLE TRIGGER USER")
	}
	// searching makes the sessions of a round.
	searching := func(db *pgtest.DB) []string {
		rows, err := db.Query(ctx, "INSERT INTO chat_sessions (status) SELECT 'searching' FROM generate_series(1, $1) RETURNING id::text", n)
		require.NoError(r.t, err)
		var ids []string
		for rows.Next() {
			var id string
			require.NoError(r.t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(r.t, rows.Err())
		r.sql(db, "VACUUM ANALYZE chat_sessions")
		r.sql(db, "VACUUM mitra_availability")
		return ids
	}
	outside := func(db *pgtest.DB) func() cost {
		return func() cost {
			ids := searching(db)
			return timed(n, func() {
				for i, id := range ids {
					_, _, err := sources[db].Accept(ctx, id, mitra(i*7%r.mitras), capacity)
					require.NoError(r.t, err)
					_, _, err = sources[db].End(ctx, id, "completed")
					require.NoError(r.t, err)
				}
			})
		}
	}
	loop := func(db *pgtest.DB) func() cost {
		return func() cost {
			searching(db)
			return timed(n, func() {
				r.sql(db, fmt.Sprintf(`DO $$
					DECLARE s uuid; m uuid;
					BEGIN
					  FOR s, m IN SELECT c.id, a.mitra_id
					    FROM (SELECT id, row_number() OVER () AS k FROM chat_sessions WHERE status = 'searching') c
					    JOIN (SELECT mitra_id, row_number() OVER () AS k FROM mitra_availability) a ON a.k = 1 + c.k %% %d
					  LOOP
					    PERFORM availability_session(s, m, 'active', 3);
					    COMMIT;
					    PERFORM availability_session(s, NULL, 'completed', 0);
					    COMMIT;
					  END LOOP;
					END $$`, r.mitras))
			})
		}
	}
	results := r.pairs(
		way{name: "without triggers", kind: floor, run: outside(bare)},
		way{name: "with triggers", kind: ours, run: outside(full)},
	)
	within := r.pairs(
		way{name: "without triggers, inside the server", kind: floor, run: loop(bare)},
		way{name: "with triggers, inside the server", kind: ours, run: loop(full)},
	)
	for db := range sources {
		var left int
		require.NoError(r.t, db.QueryRow(ctx, "SELECT count(*) FROM chat_sessions WHERE status <> 'completed'").Scan(&left))
		require.Zero(r.t, left)
	}
	r.say("### %s, PostgreSQL %s", how, r.version(full))
	r.walls(slices.Concat(results, within))
	r.promise("accept and end, "+how+": × without triggers", "%.2f", results[1].wallRatio, limit)
	if inside > 0 {
		r.promise("accept and end inside the server, "+how+": × without triggers", "%.2f", within[1].wallRatio, inside)
	}
}

func (r *rig) version(db *pgtest.DB) (v string) {
	require.NoError(r.t, db.QueryRow(r.t.Context(), "SHOW server_version").Scan(&v))
	return v
}

// mirrorAndReconcile are the two sweeps that read everything.
func mirrorAndReconcile(r *rig) {
	ctx, n := r.t.Context(), r.mitras
	r.section("Availability: heartbeats are brought to PostgreSQL, and everything is compared")
	db := pgtest.Start(r.t, "shared_buffers=128MB").Database()
	source := r.staff(db, n)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = mitra(i)
	}
	slices.Sort(ids)
	vacuum := func() { r.sql(db, "VACUUM ANALYZE mitra_online_status") }
	stored := r.pairs(
		way{name: "UPDATE from unnest", kind: floor, run: func() cost {
			vacuum()
			now := time.Now()
			return timed(n, func() {
				for some := range slices.Chunk(ids, page) {
					known, moments := make([]pgtype.UUID, len(some)), make([]time.Time, len(some))
					for i, id := range some {
						require.NoError(r.t, known[i].Scan(id))
						moments[i] = now
					}
					r.sql(db, `UPDATE mitra_online_status s SET last_heartbeat_at = h.moment, updated_at = now()
						FROM unnest($1::uuid[], $2::timestamptz[]) AS h (id, moment) WHERE s.mitra_id = h.id`, known, moments)
				}
			})
		}},
		way{name: "MirrorHeartbeats", kind: ours, run: func() cost {
			vacuum()
			now := time.Now()
			return timed(n, func() {
				for some := range slices.Chunk(ids, page) {
					beats := make([]availability.Heartbeat, len(some))
					for i, id := range some {
						beats[i] = availability.Heartbeat{ID: id, At: now}
					}
					stored, err := source.MirrorHeartbeats(ctx, beats)
					require.NoError(r.t, err)
					require.Len(r.t, some, stored)
				}
			})
		}},
	)
	r.say("### %s heartbeats, in statements of %d", many(n), page)
	r.say("The floor asks neither whether they are newer nor who else holds the rows, and locks them in any order.")
	r.walls(stored)
	r.promise(fmt.Sprintf("%s heartbeats stored: × the unguarded UPDATE", many(n)), "%.2f", stored[1].wallRatio, 1.8)

	r.clear()
	m := r.mirror(source)
	m.stop()
	require.NoError(r.t, r.rdb.Del(ctx, r.keys.Witness()).Err())
	r.warm() // with the gap of a replica
	p := r.replica("sweeper", func(_ *registry.Config, jc *janitor.Config) { jc.Sweeps = m.Sweeps() })
	p.leads()
	reconcile := func() {
		reports, err := p.jan.Sweep(ctx, janitor.Request{Sweep: "availability_reconcile"})
		require.NoError(r.t, err)
		require.Len(r.t, reports, 1)
		require.Equal(r.t, janitor.Done, reports[0].Outcome, "%+v", reports[0])
		require.GreaterOrEqual(r.t, reports[0].Scanned, n)
	}
	reconcile() // behind the first of the term
	compared := r.pairs(
		way{name: "both are read", kind: floor, run: func() cost {
			return r.measure(n, func() { r.readBoth(source, n) })
		}},
		way{name: "reconciliation", kind: ours, run: func() cost {
			return r.measure(n, reconcile)
		}},
	)
	for kind, found := range m.Health().Drift {
		require.Zero(r.t, found, kind)
	}
	p.stop()
	r.say("### A reconciliation of %s", many(n))
	r.say("The floor reads all of both stores, page by page, and compares nothing.")
	r.costs(compared)
}

// readBoth reads what a reconciliation has to read at least.
func (r *rig) readBoth(source *postgres.Source, n int) {
	ctx, met := r.t.Context(), 0
	for after := ""; ; {
		states, err := source.Page(ctx, after, batch)
		require.NoError(r.t, err)
		met += len(states)
		if len(states) < batch {
			break
		}
		after = states[len(states)-1].ID
	}
	require.Equal(r.t, n, met)
	for _, set := range []string{onlineKey, deactivatedKey} {
		require.NoError(r.t, r.rdb.SMembers(ctx, set).Err())
	}
	versions, err := r.rdb.HGetAll(ctx, "mitras:version").Result()
	require.NoError(r.t, err)
	keys := make([]string, 0, 2*page)
	for id := range versions {
		if keys = append(keys, heartbeatKey+id, capacityKey+id); len(keys) == cap(keys) {
			require.NoError(r.t, r.rdb.MGet(ctx, keys...).Err())
			keys = keys[:0]
		}
	}
}

// fromRawSQL is how late readers see what somebody does by psql.
func fromRawSQL(r *rig) {
	ctx := r.t.Context()
	r.section("Availability: from raw SQL to Redis")
	db := pgtest.Start(r.t).Database()
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
			require.NoError(r.t, err)
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

// polls are those of many customers for the snapshot, at several replicas.
func polls(r *rig) {
	const replicas, each = 4, time.Millisecond
	r.section("Availability: customers poll")
	r.clear()
	fleet := make([]*mirror, replicas)
	counted := make([]*prometheus.Registry, replicas)
	rows := crew(r.mitras)
	for i := range fleet {
		counted[i] = prometheus.NewRegistry()
		fleet[i] = r.mirror(newTable(rows), func(c *availability.Config) { c.Registerer = counted[i] })
		fleet[i].stop()
	}
	n := int(r.polls / each)
	var late atomic.Int64
	c := r.measure(n, func() {
		begun := time.Now()
		workers(pingers, n, func(i int) {
			wait.For(r.t.Context(), time.Until(begun.Add(time.Duration(i)*each)))
			if a, err := fleet[i%replicas].Snapshot(r.t.Context()); err != nil {
				late.Add(1) // on a busy machine
			} else if !a.Value.Available {
				r.t.Error(a)
			}
		})
	})
	computed := 0.0
	for _, one := range counted {
		families, err := one.Gather()
		require.NoError(r.t, err)
		for _, family := range families {
			if family.GetName() == "availability_snapshots_total" {
				computed += family.GetMetric()[0].GetCounter().GetValue()
			}
		}
	}
	r.say("%s polls of the snapshot in %s, at %d replicas: %.0f computations, %s of Redis CPU (%.1f %% of a core), %d without an answer.",
		many(n), c.wall.Round(time.Second), replicas, computed, brief(c.cpu), 100*c.cpu.Seconds()/c.wall.Seconds(), late.Load())
	r.promise(fmt.Sprintf("computations of the snapshot for %s polls", many(n)), "%.0f", computed, max(1, r.polls.Minutes()*6))
}
