package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rollcall-redis/rollcall/availability"
)

// step is something that happens. seed is of the chances that it takes.
type step struct {
	what string
	seed uint64
}

func (s step) String() string { return s.what }

// often is how often steps happen, by what they are.
var often = []struct {
	what string
	n    int
	do   func(w *world)
}{
	{"heartbeat", 60, func(w *world) { w.beat(w.replica(), w.free()) }},
	{"heartbeat at the source", 14, func(w *world) { w.beatAtSource(w.replica(), w.free()) }},
	{"online", 24, func(w *world) { w.online(w.replica(), w.who(func(t is) bool { return t.active && !t.online })) }},
	{"offline", 8, func(w *world) {
		w.write("offline", func(ctx context.Context, r *replica, id string) error {
			_, err := r.Offline(ctx, id)
			return err
		})
	}},
	{"deactivate", 6, func(w *world) {
		w.write("deactivate", func(ctx context.Context, r *replica, id string) error {
			_, err := r.Deactivate(ctx, id)
			return err
		})
	}},
	{"activate", 14, func(w *world) {
		ctx, cancel := briefly()
		defer cancel()
		r, id := w.replica(), w.who(func(t is) bool { return !t.active })
		_, err := r.Activate(ctx, id)
		if errors.Is(err, availability.ErrNotFound) {
			w.raw("INSERT INTO mitras (id) VALUES ($1)", id)
		}
		w.say("  %s by %s: %v", id, r.name, err)
	}},
	{"accept", 26, func(w *world) { w.session("searching", w.some(), accept) }},
	{"reroute", 10, func(w *world) {
		w.session("active", w.some(), func(ctx context.Context, r *replica, session, id string) error {
			_, err := r.Reroute(ctx, session, id)
			return err
		})
	}},
	{"end", 10, func(w *world) {
		w.session("active", w.some(), func(ctx context.Context, r *replica, session, _ string) error {
			_, err := r.End(ctx, session, "completed")
			return err
		})
	}},
	{"extend", 4, func(w *world) {
		paid := w.chance(1, 2)
		w.session("active", w.some(), func(ctx context.Context, r *replica, session, _ string) error {
			_, err := r.Extend(ctx, session, paid)
			return err
		})
	}},
	{"cancel", 3, func(w *world) {
		w.session("pending_payment", w.some(), func(ctx context.Context, r *replica, session, _ string) error {
			_, err := r.End(ctx, session, "cancelled")
			return err
		})
	}},
	{"by hand", 24, func(w *world) { w.byHand() }},
	{"copy", 3, func(w *world) { w.copyIn() }},
	{"truncate", 2, func(w *world) { w.truncate() }},
	{"unseen rows", 6, func(w *world) { w.unseenRows() }},
	{"a child of the table", 4, func(w *world) { w.toggleChild() }},
	{"hang", 10, func(w *world) { w.hang() }},
	{"hung ends", 14, func(w *world) { w.hungEnds() }},
	{"setting", 12, func(w *world) { w.setting() }},
	{"time passes", 30, func(w *world) { w.timePasses() }},
	{"sweep for silence", 26, func(w *world) { w.sweep() }},
	{"comparison", 8, func(w *world) { w.compare() }},
	{"heartbeats are copied", 6, func(w *world) { w.pass("availability_heartbeats") }},
	{"feed's connection ends", 6, func(w *world) { w.endFeeds() }},
	{"connections end", 2, func(w *world) { w.endConnections() }},
	{"a process of PostgreSQL is killed", 4, func(w *world) { w.crash() }},
	{"PostgreSQL restarts", 1, func(w *world) { w.restartSource() }},
	{"backup", 4, func(w *world) { w.backUp() }},
	{"restore", 4, func(w *world) { w.restore() }},
	{"failover", 1, func(w *world) { w.failOver() }},
	{"FLUSHALL", 3, func(w *world) { w.flush() }},
	{"Redis saves", 2, func(w *world) { w.rdb.Save(context.Background()) }},
	{"Redis is set back", 3, func(w *world) { w.setRedisBack() }},
	{"Redis restarts", 2, func(w *world) { w.restartRedis() }},
	{"a key is deleted", 8, func(w *world) { w.deleteKey() }},
	{"a key of another type", 12, func(w *world) { w.poison() }},
	{"a value by hand", 6, func(w *world) { w.mar() }},
	{"cut", 6, func(w *world) { w.replica().line.sever() }},
	{"cut ends", 10, func(w *world) { w.replica().line.cut.Store(false) }},
	{"leader resigns", 4, func(w *world) { w.resign() }},
	{"replica restarts", 2, func(w *world) { w.replace() }},
	{"Redis stays away", 1, func(w *world) { w.staysAway() }},
	{"nothing", 6, func(*world) {}},
}

const (
	episodeSteps = 80
	// hungSteps is how many steps a transaction hangs for at most: many of them have to wait for it.
	hungSteps = 4
	// clockSteps is how exact the time of a look is that another replica took.
	clockSteps = 5 * time.Millisecond
)

// plan are the steps of a seed.
func plan(seed uint64) (steps []step) {
	rng := rand.New(rand.NewPCG(seed, 4))
	sum := 0
	for _, o := range often {
		sum += o.n
	}
	for range episodeSteps {
		n := rng.IntN(sum)
		for _, o := range often {
			if n -= o.n; n < 0 {
				steps = append(steps, step{o.what, rng.Uint64()})
				break
			}
		}
	}
	return steps
}

func (w *world) play(steps []step) {
	for _, s := range steps {
		w.rng = rand.New(rand.NewPCG(s.seed, 5))
		w.say("%s", s.what)
		if (w.unseen || w.all || len(w.marred) > 0) && w.chance(1, 4) {
			w.compare()
		}
		for _, o := range often {
			if o.what == s.what {
				o.do(w)
			}
		}
		w.Steps++
		for _, h := range w.hung {
			h.steps++
		}
		if len(w.hung) > 0 && w.hung[0].steps > hungSteps {
			w.hungEnds()
		}
		if w.chance(1, 2) {
			w.look()
		}
	}
	w.rests()
	w.silence()
}

// briefly is the time of one call.
func briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Second)
}

// beat is a heartbeat as the API takes it: where Redis cannot, the source does.
func (w *world) beat(r *replica, id string) {
	ctx, cancel := briefly()
	defer cancel()
	begun := time.Now()
	beat, err := r.Heartbeat(ctx, id)
	w.say("  %s by %s: %s %v", id, r.name, beat, err)
	if err == nil && beat != availability.BeatUnseeded {
		if beat == availability.BeatKept {
			w.acknowledged(id, begun, true)
		}
		return
	}
	if w.beatAtSource(r, id) != nil && err == nil { // Redis kept it, and the source cannot be asked
		w.acknowledged(id, begun, true)
	}
}

func (w *world) beatAtSource(r *replica, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	begun := time.Now()
	beat, err := r.HeartbeatAtSource(ctx, id)
	w.say("  %s at the source by %s: %s %v", id, r.name, beat, err)
	if err == nil && beat == availability.BeatKept {
		w.acknowledged(id, begun, false)
	}
	return err
}

func (w *world) online(r *replica, id string) {
	ctx, cancel := briefly()
	defer cancel()
	begun := time.Now()
	_, err := r.Online(ctx, id)
	w.say("  %s by %s: %v", id, r.name, err)
	if err == nil {
		w.acknowledged(id, begun, false)
	}
}

// write has a replica change a mitra.
func (w *world) write(what string, f func(ctx context.Context, r *replica, id string) error) {
	ctx, cancel := briefly()
	defer cancel()
	r, id := w.replica(), w.free()
	err := f(ctx, r, id)
	w.say("  %s %s by %s: %v", what, id, r.name, err)
}

// some is a mitra for a session: half of them are the same, so that it has no room at times.
func (w *world) some() string {
	if w.chance(1, 2) {
		return w.ids[0]
	}
	return w.free()
}

func accept(ctx context.Context, r *replica, session, id string) error {
	_, err := r.Accept(ctx, session, id)
	return err
}

// session has a replica do something with a session that has a status, and a mitra.
func (w *world) session(
	status, id string, f func(ctx context.Context, r *replica, session, id string) error,
) {
	ctx, cancel := briefly()
	defer cancel()
	r := w.replica()
	var session string
	err := w.db.QueryRow(ctx, `SELECT id::text FROM chat_sessions WHERE status = $1 ORDER BY random() LIMIT 1`,
		status).Scan(&session)
	if err != nil {
		_, _ = w.db.Exec(ctx, "INSERT INTO chat_sessions (status) SELECT 'searching' FROM generate_series(1, 4)")
		return
	}
	w.say("  session %s, %s by %s: %v", session, id, r.name, f(ctx, r, session, id))
}

// statements are psql's, about one mitra.
var statements = []string{
	"UPDATE mitras SET is_active = NOT is_active WHERE id = $1",
	"UPDATE mitras SET is_active = true WHERE id = $1",
	"UPDATE mitra_online_status SET is_online = NOT is_online WHERE mitra_id = $1",
	"UPDATE mitra_online_status SET is_online = is_online WHERE mitra_id = $1",
	"INSERT INTO mitra_online_status (mitra_id, is_online) VALUES ($1, true) ON CONFLICT (mitra_id) DO UPDATE SET is_online = true",
	"DELETE FROM mitra_online_status WHERE mitra_id = $1",
	"INSERT INTO chat_sessions (status, mitra_id) VALUES ('active', $1)",
	"INSERT INTO chat_sessions (status, mitra_id) SELECT 'active', $1 FROM generate_series(1, 3)",
	"UPDATE chat_sessions SET status = 'completed' WHERE mitra_id = $1",
	"UPDATE chat_sessions SET mitra_id = $1 WHERE status = 'active'",
	"DELETE FROM chat_sessions WHERE mitra_id = $1",
	"DELETE FROM mitras WHERE id = $1",
	"INSERT INTO mitras (id) VALUES ($1) ON CONFLICT DO NOTHING",
	"INSERT INTO mitras (id) VALUES ($1) ON CONFLICT DO NOTHING",
	"WITH s AS (UPDATE chat_sessions SET status = 'pending_payment' WHERE mitra_id = $1 AND status = 'active' RETURNING 1) " +
		"UPDATE mitras SET is_active = true WHERE id = $1",
	"MERGE INTO mitra_online_status s USING (SELECT $1::uuid AS m) x ON s.mitra_id = x.m WHEN MATCHED THEN UPDATE SET is_online = true " +
		"WHEN NOT MATCHED THEN INSERT (mitra_id, is_online) VALUES (x.m, true)",
}

func (w *world) statement() string { return statements[w.rng.IntN(len(statements))] }

func (w *world) byHand() { w.raw(w.statement(), w.any()) }

func (w *world) copyIn() {
	var rows [][]any
	for range 1 + w.rng.IntN(4) {
		rows = append(rows, []any{"active", w.any()})
	}
	_, err := w.db.CopyFrom(context.Background(), pgx.Identifier{"chat_sessions"}, []string{"status", "mitra_id"},
		pgx.CopyFromRows(rows))
	w.say("  %d rows: %v", len(rows), err)
}

func (w *world) truncate() {
	w.raw("TRUNCATE " + []string{"chat_sessions", "mitra_online_status", "mitra_online_logs, chat_sessions"}[w.rng.IntN(3)])
}

// unseenRows changes rows that no trigger sees: those of an older version of a table, of a
// replication, or of a child that is written by its own name. Then the mitra may be given a
// session.
func (w *world) unseenRows() {
	w.unseen = true
	id, sql := w.any(), w.statement()
	if w.chance(1, 2) {
		sql = "INSERT INTO chat_sessions (status, mitra_id) SELECT 'active', $1 FROM generate_series(1, 3)"
	}
	if w.child && w.chance(1, 2) {
		w.raw("INSERT INTO search_children (id, status, mitra_id) SELECT gen_random_uuid(), 'active', $1 FROM generate_series(1, 2)",
			id)
	} else {
		w.inTx(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
				return err
			}
			w.say("  %s %s", sql, id)
			_, err := tx.Exec(ctx, sql, id)
			return err
		})
	}
	if w.chance(1, 2) {
		w.session("searching", id, accept)
	}
}

func (w *world) inTx(f func(ctx context.Context, tx pgx.Tx) error) bool {
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error { return f(ctx, tx) })
	w.say("  %v", err)
	return err == nil
}

// toggleChild attaches a table whose rows no trigger has seen to the sessions, or detaches it.
func (w *world) toggleChild() {
	if len(w.hung) > 0 { // it may hold the states that are to be repaired
		return
	}
	w.mending = true
	if w.child {
		if w.raw("ALTER TABLE search_children NO INHERIT chat_sessions") {
			w.child = false
			// One that leaves again before the feed has looked leaves no trace.
			w.unseen = w.unseen || time.Since(w.came) < within && !w.lookedSince(w.came)
		}
		return
	}
	w.raw("INSERT INTO search_children (id, status, mitra_id) VALUES (gen_random_uuid(), 'active', $1)", w.any())
	if w.raw("ALTER TABLE search_children INHERIT chat_sessions") {
		w.child, w.came = true, time.Now()
	}
}

// lookedSince reports whether the feed has brought everything from a look that began later.
func (w *world) lookedSince(at time.Time) bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool {
		return r.Health().FeedAt.After(at.Add(clockSteps))
	})
}

// hang begins a transaction that stays open, and changes something, or locks a table.
func (w *world) hang() {
	if len(w.hung) == 2 || w.mending {
		return
	}
	ctx := context.Background()
	o := pgx.TxOptions{IsoLevel: []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead}[w.rng.IntN(2)]}
	tx, err := w.db.BeginTx(ctx, o)
	if err != nil {
		return
	}
	h := &hung{tx: tx, holds: []string{w.any()}}
	sql, args := w.statement(), []any{h.holds[0]}
	switch w.rng.IntN(6) {
	case 0:
		sql, args, h.holds = "SELECT pg_current_xact_id()", nil, nil
	case 1:
		sql, args, h.holds = "LOCK TABLE app_config IN ACCESS EXCLUSIVE MODE", nil, nil
	case 2:
		sql, args, h.all = "LOCK TABLE mitra_online_status IN ACCESS EXCLUSIVE MODE", nil, true
	}
	_, err = tx.Exec(ctx, sql, args...)
	w.say("  %s %v: %v", sql, args, err)
	if err != nil {
		_ = tx.Rollback(ctx)
		return
	}
	w.hung = append(w.hung, h)
}

// hungEnds ends one of those that hang: it commits, aborts, or loses its connection.
func (w *world) hungEnds() {
	if len(w.hung) == 0 {
		return
	}
	ctx, h := context.Background(), w.hung[0]
	w.hung = w.hung[1:]
	switch w.rng.IntN(4) {
	case 0:
		w.say("  it aborts: %v", h.tx.Rollback(ctx))
	case 1:
		_, err := w.admin.Exec(ctx, "SELECT pg_terminate_backend($1, 3000)", int(h.tx.Conn().PgConn().PID()))
		w.say("  its connection ends: %v", err)
		_ = h.tx.Rollback(ctx) // it has
	default:
		w.say("  it commits: %v", h.tx.Commit(ctx))
	}
}

// timePasses moves time on, often by less than a mitra may be silent.
func (w *world) timePasses() {
	d := time.Duration(w.rng.Int64N(int64(staleAfter)))
	switch w.rng.IntN(5) {
	case 0:
		d += staleAfter
	case 1:
		d += time.Duration(w.rng.Int64N(int64(20 * time.Minute)))
	}
	w.advance(d.Round(time.Millisecond))
}

// sweep has the silent set offline. The commit may take its time, while heartbeats are taken.
func (w *world) sweep() {
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 6))
	if w.chance(1, 2) {
		during := func() {
			for _, id := range w.ids {
				switch r := w.replicas[rng.IntN(len(w.replicas))]; rng.IntN(6) {
				case 0, 1, 2:
					w.say("  during the commit: %s", id)
					w.beat(r, id)
				case 3:
					if rng.IntN(6) == 0 { // it waits for the lock
						_ = w.beatAtSource(r, id)
					}
				}
			}
		}
		w.during.Store(&during)
		defer w.during.Store(nil)
	}
	w.pass("availability_offline")
}

func (w *world) resign() {
	for _, r := range w.replicas {
		if r.jan.Leading() {
			ctx, cancel := briefly()
			w.say("  %s: %v", r.name, r.jan.Resign(ctx))
			cancel()
			return
		}
	}
}

// replace has another process take the place of a replica.
func (w *world) replace() {
	i := w.rng.IntN(len(w.replicas))
	if w.chance(1, 2) { // it is killed: it says nothing more to Redis
		w.replicas[i].line.sever()
	}
	w.replicas[i].stop()
	w.replicas[i] = w.start(w.replicas[i].name)
	w.limited()
}
