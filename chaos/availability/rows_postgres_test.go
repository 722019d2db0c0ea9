package availability

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// postgresKilled kills Postgres with all its connections, in the middle of everything.
func postgresKilled(w *world) {
	w.pg.Kill()
	harness.Lasting(2 * time.Second)
	w.pg.Restart()
}

// postgresAway is away for longer than a mitra may be silent. Who pings is online all the time:
// heartbeats need no Postgres.
func postgresAway(w *world) {
	w.pg.Kill()
	lasting()
	for _, id := range sorted(w.replicas) {
		_, from, err := w.available(w.Context(), w.replicas[id].HTTP)
		require.NoError(w, err)
		require.Equal(w, "valkey", from)
	}
	w.pg.Restart()
}

// postgresFrozen answers nothing for longer than anybody waits, and goes on then.
func postgresFrozen(w *world) {
	w.pg.Stop()
	harness.Lasting(7 * time.Second)
	w.pg.Cont()
}

// postgresSlow stands still most of the time.
func postgresSlow(w *world) {
	for range 20 {
		w.pg.Stop()
		harness.Lasting(300 * time.Millisecond)
		w.pg.Cont()
		harness.Lasting(50 * time.Millisecond)
	}
}

// setBack has Postgres lose what it commits during a time: a failover to a replica that is behind.
func (w *world) setBack(during func()) {
	w.Helper()
	before := w.pg.Copy()
	during()
	copied := w.pg.RestartOn(before)
	w.lost = append(w.lost, lostTime{copied, time.Now()})
}

// postgresSetBack loses commits that Redis has: it is ahead, and outbid.
func postgresSetBack(w *world) { w.setBack(w.works) }

// postgresSetBackWhileRedisIsAway has nobody see that versions are taken again.
func postgresSetBackWhileRedisIsAway(w *world) {
	w.setBack(func() {
		w.works()
		w.redis.Stop()
	})
	harness.Lasting(time.Second)
	w.redis.Cont()
}

// postgresRecovers kills one of its processes, as the OOM killer does: the others end, and it
// recovers, with the same start time and timeline.
func postgresRecovers(w *world) {
	for range 3 {
		conn, err := w.db.Acquire(w.Context())
		require.NoError(w, err)
		require.NoError(w, syscall.Kill(int(conn.Conn().PgConn().PID()), syscall.SIGKILL))
		conn.Release()
		w.eventually("Postgres answers again", "SELECT 1")
		w.works()
	}
}

// postgresConnectionsEnd ends all connections again and again.
func postgresConnectionsEnd(w *world) {
	for range 10 {
		w.eventually("connections end", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		harness.Lasting(300 * time.Millisecond)
	}
}

// postgresLocked locks the settings for longer than a mitra may be silent, in a transaction that
// holds back what others have seen.
func postgresLocked(w *world) {
	tx, err := w.db.Begin(w.Context())
	require.NoError(w, err)
	_, err = tx.Exec(w.Context(), "SELECT pg_current_xact_id(); LOCK TABLE app_config IN ACCESS EXCLUSIVE MODE")
	require.NoError(w, err)
	lasting()
	require.NoError(w, tx.Rollback(w.Context()))
}

// postgresFailedOver ends Postgres while its standby is behind, which is promoted then.
func postgresFailedOver(w *world) {
	w.standby.Detach()
	w.works()
	w.pg.Kill()
	w.former += w.pg.Log()
	copied := w.pg.Copy()
	harness.Lasting(time.Second)
	w.standby.Promote()
	w.pg, w.lost = w.standby, append(w.lost, lostTime{copied, time.Now()})
}

// deadlocksForced has others lock rows in any order, for some seconds. The program's statements are
// tried again.
func deadlocksForced(w *world) {
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for ctx.Err() == nil {
				w.lockAgainstTheRule(ctx)
			}
		})
	}
	harness.Eventually(w.T, "there are deadlocks", func() bool {
		return w.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") >= 10
	})
	stop()
	wait.Wait()
}

// lockAgainstTheRule changes states before what they are made of, and later ids before earlier
// ones.
func (w *world) lockAgainstTheRule(ctx context.Context) {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // or it is over
	for _, i := range rand.Perm(len(w.ids))[:4] {
		for _, sql := range []string{
			"SELECT FROM mitra_availability WHERE mitra_id = $1 FOR NO KEY UPDATE",
			"UPDATE mitra_online_status SET updated_at = now() WHERE mitra_id = $1",
		} {
			if _, err := tx.Exec(ctx, sql+" /* "+foreign+" */", w.ids[i]); err != nil {
				return // it was the one to give way
			}
		}
		if !pause(ctx, 5*time.Millisecond) {
			return
		}
	}
	_ = tx.Commit(ctx)
}

// truncated empties tables, which names no rows.
func truncated(w *world) {
	for _, table := range []string{"chat_sessions", "mitra_online_status", "chat_sessions"} {
		w.eventually("TRUNCATE "+table, "TRUNCATE "+table+" /* "+foreign+" */")
		w.works()
	}
}

// eventually runs a statement until it succeeds: it may deadlock with others.
func (w *world) eventually(what, sql string, args ...any) {
	w.Helper()
	harness.Eventually(w.T, what, func() bool {
		_, err := w.db.Exec(w.Context(), sql, args...)
		return err == nil
	})
}

// triggersOff changes tables behind the back of their triggers, as a logical restore does: a
// reconciliation finds it.
func triggersOff(w *world) {
	for range 3 {
		w.eventually("the tables are changed", `/* `+foreign+` */ SET LOCAL session_replication_role = replica;
			UPDATE chat_sessions SET status = 'completed' WHERE status = 'active' AND random() < 0.5;
			INSERT INTO chat_sessions (status, mitra_id) SELECT 'active', id FROM mitras WHERE random() < 0.3;
			UPDATE mitra_online_status SET is_online = NOT is_online WHERE random() < 0.3;
			UPDATE mitras SET is_active = true`)
		harness.Eventually(w.T, "states are repaired", func() bool {
			return w.count(`SELECT count(*) FROM mitra_availability_truth t JOIN mitra_availability a USING (mitra_id)
				WHERE (t.is_online, t.is_active, t.active_sessions)
				IS DISTINCT FROM (a.is_online, a.is_active, a.active_sessions)`) == 0
		})
	}
	harness.Eventually(w.T, "a replica tells of it", func() bool {
		for _, r := range w.replicas {
			if n, err := r.Metric("availability_drift_total"); err == nil && n > 0 {
				return true
			}
		}
		return false
	})
}
