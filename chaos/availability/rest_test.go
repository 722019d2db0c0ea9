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
func (w *world) differences(ctx context.Context) (found []string) {
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	failed := func(err error) bool {
		if err != nil {
			note("%v", err)
		}
		return err != nil
	}
	rows, err := w.db.Query(ctx, `SELECT a.mitra_id::text, a.is_online, a.is_online AND a.is_active, a.is_active, a.active_sessions, a.version,
			(t.is_online, t.is_active, t.active_sessions)
			IS NOT DISTINCT FROM (a.is_online, a.is_active, a.active_sessions),
			coalesce(to_char(s.seen AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '')
		FROM mitra_availability a LEFT JOIN mitra_availability_truth t USING (mitra_id)
		LEFT JOIN mitra_availability_state s USING (mitra_id)`)
	if failed(err) {
		return found
	}
	type row struct {
		state
		version int64
		seen    string
		keeps   bool // its heartbeat: it is online, and perhaps not active
	}
	want := map[string]row{}
	for rows.Next() {
		var id string
		var r row
		var same bool
		if failed(rows.Scan(&id, &r.keeps, &r.online, &r.active, &r.sessions, &r.version, &same, &r.seen)) {
			return found
		}
		if !same {
			note("%s: state %+v is not what the tables say", id, r.state)
		}
		want[id] = r
	}
	if failed(rows.Err()) {
		return found
	}
	m, beats, err := w.mirror(ctx)
	if failed(err) {
		return found
	}
	for _, id := range sorted(want) {
		s, version, fine := m.shows(id)
		if r := want[id]; !fine || s != r.state || version != r.version {
			note("%s: Redis has %+v at version %d, Postgres %+v at %d", id, s, version, r.state, r.version)
		} else if has, there := beats[id]; r.keeps && has < r.seen || !r.keeps && there {
			note("%s: heartbeat %q, Postgres has %q, online %t", id, has, r.seen, r.online)
		}
	}
	for id := range m.members[versions] {
		if _, known := want[id]; !known {
			note("%s: Postgres does not know it", id)
		}
	}
	for _, key := range []string{online, deactivated} {
		for id := range m.members[key] {
			if _, known := want[id]; !known {
				note("%s: Postgres does not know it, and it is in %s", id, key)
			}
		}
	}
	if m.strings[seeded] == "" {
		note("the mirror is not whole")
	}
	for _, id := range w.silent() {
		if want[id].online {
			note("%s is silent, and online", id)
		}
	}
	for _, id := range w.steady() {
		if !want[id].online && want[id].active {
			note("%s pings, and is offline", id)
		}
	}
	return found
}

// mirror is all that Redis has of the mirror, in one instant.
func (w *world) mirror(ctx context.Context) (m *model, beats map[string]string, err error) {
	m, beats = newModel(), map[string]string{}
	names, err := w.rdb.Keys(ctx, "mitra*").Result()
	if err != nil {
		return nil, nil, err
	}
	pipe := w.rdb.TxPipeline()
	on, off := pipe.SMembers(ctx, online), pipe.SMembers(ctx, deactivated)
	has := pipe.HGetAll(ctx, versions)
	slices.Sort(names)
	single := slices.DeleteFunc(names, func(key string) bool {
		return !strings.HasPrefix(key, "mitra:") && key != seeded
	})
	values := pipe.MGet(ctx, append(single, seeded)...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	for key, members := range map[string][]string{online: on.Val(), deactivated: off.Val()} {
		m.members[key] = map[string]string{}
		for _, id := range members {
			m.members[key][id] = ""
		}
	}
	m.members[versions] = has.Val()
	for i, key := range append(single, seeded) {
		text, is := values.Val()[i].(string)
		if id, beat := strings.CutPrefix(key, heartbeat); is && beat {
			beats[id] = text
		} else if is {
			m.strings[key] = text
		}
	}
	return m, beats, nil
}

// judgeRejects is what a row says whose history is wrong.
const judgeRejects = "the judges reject"

// judge judges what both stores wrote down.
func (w *world) judge() {
	w.Helper()
	w.judged = true
	h, err := history.Read(w.parts...) // first: what it shows is committed
	require.NoError(w, err)
	t, err := readTruth(w.Context(), w.pg.URL(w.name), false)
	require.NoError(w, err)
	has := map[[2]int64]bool{}
	for _, c := range t.changes {
		has[[2]int64{c.seq, c.at.UnixMicro()}] = true
	}
	gone, signs := 0, w.acknowledged()
	for _, back := range w.lost {
		lost, err := readTruth(w.Context(), pgtest.StartOn(w.T, back.copied, started...).URL(w.name), true)
		require.NoError(w, err)
		lost.changes = slices.DeleteFunc(lost.changes, func(c change) bool {
			return has[[2]int64{c.seq, c.at.UnixMicro()}]
		})
		gone += len(lost.changes)
		// With the commit the sign of life is lost that it was. If the mitra went offline by it, Redis
		// has lost the heartbeats of before as well.
		for _, c := range lost.changes {
			signs[c.mitra] = slices.DeleteFunc(signs[c.mitra], func(s sign) bool { return s.began.Before(back.to) })
		}
		t = t.after(lost)
	}
	of := judgeTruth(t, rules{stale: stale, places: places, signs: signs})
	mirror := judgeMirror(h, t, w.row.evicts)
	w.Logf("%d versions (%d lost), %d set offline for silence, %d log rows; "+
		"Redis: %d events, %d states shown, %d seedings, %d states of reroutes, %d before the other mitra's",
		of.versions, gone, of.flips, of.logs, mirror.events, mirror.shown, mirror.seeds, mirror.moves, mirror.halves)
	wrong := slices.Concat(of.Wrong, mirror.Wrong, w.deadlocks())
	require.Empty(w, wrong[:min(len(wrong), 20)], judgeRejects)
	require.Greater(w, of.versions, 100, "a crowd that does not work proves nothing")
	require.NotZero(w, of.flips)
	require.NotZero(w, mirror.shown)
}

// foreign is in each statement that locks in another order than everybody should.
const foreign = "locks in another order"

// deadlocks are those in which only statements were that keep to the rule.
func (w *world) deadlocks() (found []string) {
	blocks := strings.Split(w.former+w.pg.Log(), "deadlock detected")
	for _, block := range blocks[1:] {
		detail, _, _ := strings.Cut(block, "CONTEXT:")
		if !strings.Contains(detail, foreign) {
			found = append(found, "deadlock: "+strings.TrimSpace(detail[:min(len(detail), 1000)]))
		}
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
