package availability

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
)

// rests waits until whoever does not ping is offline in both stores, whoever pings is online, and
// the stores agree in everything.
func (w *world) rests() {
	w.Helper()
	var found []string
	ok := harness.Becomes(func() bool {
		found = w.differences(w.Context())
		return len(found) == 0
	})
	require.True(w, ok, "at rest: %s", strings.Join(found, "\n"))
	w.says("at rest nothing differs")
}

// differences are those of Redis and Postgres, of Postgres' states and its own tables, and of both
// from what has to be at rest.
func (w *world) differences(ctx context.Context) []string {
	found := pgtest.Differences(ctx, w.db, w.rdb, "", 0)
	var odd []string
	err := w.db.QueryRow(ctx, `SELECT array_agg(mitra_id || CASE WHEN is_online THEN ' is silent, and online' ELSE ' pings, and is offline' END)
		FROM mitra_availability WHERE is_active AND (mitra_id::text = ANY ($1) AND is_online OR mitra_id::text = ANY ($2) AND NOT is_online)`,
		w.silent(), w.steady()).Scan(&odd)
	if err != nil {
		found = append(found, err.Error())
	}
	return append(found, odd...)
}

// judgeRejects is what a row says whose history is wrong.
const judgeRejects = "the judges reject"

// judge judges what both stores wrote down.
func (w *world) judge() {
	w.Helper()
	w.judged = true
	h, err := history.Read(w.redis.Dir()) // first: what it shows is committed
	require.NoError(w, err)
	t, err := readTruth(w.Context(), w.pg.URL(w.name))
	require.NoError(w, err)
	of, mirror := judgeTruth(t, rules{stale: stale, places: places, signs: w.acknowledged()}), judgeMirror(h, t)
	w.Logf("%d versions, %d set offline for silence, %d log rows; "+
		"Redis: %d events, %d states shown, %d seedings, %d states of reroutes, %d before the other mitra's",
		of.versions, of.flips, of.logs, mirror.events, mirror.shown, mirror.seeds, mirror.moves, mirror.halves)
	wrong := slices.Concat(of.Wrong, mirror.Wrong, w.deadlocks())
	require.Empty(w, wrong[:min(len(wrong), 20)], judgeRejects)
	require.Greater(w, of.versions, 100, "a crowd that does not work proves nothing")
	require.NotZero(w, of.flips)
	require.NotZero(w, mirror.shown)
}

// deadlocks are those of the program's statements.
func (w *world) deadlocks() (found []string) {
	for _, block := range strings.Split(w.pg.Log(), "deadlock detected")[1:] {
		detail, _, _ := strings.Cut(block, "CONTEXT:")
		found = append(found, "deadlock: "+strings.TrimSpace(detail[:min(len(detail), 1000)]))
	}
	for _, id := range sorted(w.replicas) {
		if log := w.logs[id] + w.replicas[id].Log(); strings.Contains(log, "40P01") {
			found = append(found, "replica "+id+" tells of a deadlock")
		}
	}
	return found
}

// sameAnswers waits until each replica answers who can take work as Postgres does, from the source
// named.
func (w *world) sameAnswers(from string) {
	w.Helper()
	for _, id := range sorted(w.replicas) {
		w.answers(from, w.replicas[id])
	}
}

func (w *world) answers(from string, r *harness.Replica) {
	w.Helper()
	var why string
	ok := harness.Becomes(func() bool {
		why = w.sameAnswer(r.HTTP, from)
		return why == ""
	})
	require.True(w, ok, "replica %s: %s", r.ID, why)
}

func (w *world) sameAnswer(to, from string) (why string) {
	found, by, err := w.available(w.Context(), to)
	if err != nil {
		return err.Error()
	}
	if by != from {
		return "answered by " + by
	}
	for _, id := range w.steady() {
		var active bool
		var sessions int
		err := w.db.QueryRow(w.Context(), `SELECT is_online AND is_active, active_sessions
			FROM mitra_availability WHERE mitra_id = $1`, id).Scan(&active, &sessions)
		n, there := found[id]
		if err != nil || there != (active && sessions < places) || there && n != sessions {
			return fmt.Sprintf("%s: found %t with %d sessions, Postgres has %t and %d (%v)", id, there, n, active,
				sessions, err)
		}
	}
	return ""
}

// lasting lets a fault last for longer than a mitra may be silent.
func lasting() { harness.Lasting(stale + 2*time.Second) }
