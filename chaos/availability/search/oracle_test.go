package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// is what PostgreSQL's own tables say of a mitra.
type is struct {
	online, active bool
	sessions       int
	seen           time.Time // by the replicas' clock; zero: never
}

// truth reads the tables; false: PostgreSQL cannot be asked now.
func (w *world) truth() (map[string]is, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	rows, err := w.db.Query(ctx, `SELECT i.id::text, coalesce(s.is_online AND m.is_active, false), coalesce(m.is_active, false),
			(SELECT count(*) FROM chat_sessions c WHERE c.mitra_id = i.id AND c.status IN ('active', 'pending_payment')),
			greatest(s.last_heartbeat_at, s.last_online_at)
		FROM unnest($1::text[]::uuid[]) AS i (id) LEFT JOIN mitras m ON m.id = i.id
		LEFT JOIN mitra_online_status s ON s.mitra_id = i.id`, w.ids)
	if err != nil {
		w.expected(err)
		return nil, false
	}
	defer rows.Close()
	truth := map[string]is{}
	for rows.Next() {
		var id string
		var of is
		var seen *time.Time
		if rows.Scan(&id, &of.online, &of.active, &of.sessions, &seen) != nil {
			return nil, false
		}
		if seen != nil {
			of.seen = seen.Add(-w.sourceAhead)
		}
		truth[id] = of
	}
	w.expected(rows.Err())
	return truth, rows.Err() == nil
}

// expected is a finding for an error of a statement that is none of a PostgreSQL that is away, or
// in which somebody holds what was asked for.
func (w *world) expected(err error) {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !away(err) && refused.Code != "55P03" && refused.Code != "57014" {
		w.found("%v", err)
	}
}

// look waits until every replica's answers have what is committed, or say that they may be old.
func (w *world) look() {
	w.judgeFlips()
	w.voidSigns()
	begun, over := time.Now(), w.patience(within)
	for {
		why := w.differs()
		if why == "" {
			break
		}
		if over() {
			w.found("after %s: %s", time.Since(begun).Round(time.Millisecond), why)
		}
		<-time.After(pollEvery)
	}
	w.mending = false
	w.slowest = max(w.slowest, time.Since(begun))
	w.count("looks")
}

// differs is the first answer that is wrong and does not say that it may be old; "": there is none.
func (w *world) differs() string {
	truth, known := w.truth()
	if !known {
		return ""
	}
	for _, r := range w.replicas {
		if why := w.wrong(r, truth); why != "" {
			return "replica " + r.name + ": " + why
		}
	}
	return ""
}

func (w *world) wrong(r *replica, truth map[string]is) string {
	ctx := context.Background()
	online := 0
	for _, id := range w.ids {
		if truth[id].online {
			online++
		}
	}
	count, err := r.CountOnline(ctx)
	if err != nil || count.Age > 0 { // it says so
		return ""
	}
	known := !w.unseen && !w.all
	if known && len(w.marred) == 0 && count.Value != online {
		return fmt.Sprintf("%d are online (from %s), and it should be %d", count.Value, count.From, online)
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return ""
	}
	for _, id := range w.ids {
		a, err := r.Status(ctx, id)
		if errors.Is(err, availability.ErrUnavailable) || a.Age > 0 {
			return ""
		}
		if err != nil && !errors.Is(err, availability.ErrNotFound) {
			return fmt.Sprintf("%s: %v", id, err)
		}
		if !known || w.marred[id] {
			continue
		}
		t, v := truth[id], a.Value
		if v.Online != t.online || v.Active != t.active || v.Sessions != t.sessions {
			return fmt.Sprintf("%s is online %t, active %t with %d sessions (from %s), and should be %t, %t with %d",
				id, v.Online, v.Active, v.Sessions, a.From, t.online, t.active, t.sessions)
		}
		if age := w.age(id, a.From); t.online && !v.Fresh && age < settings.StaleAfter-w.slack() {
			return fmt.Sprintf("%s is silent (from %s, last heard %s), and a sign of life was acknowledged %s ago",
				id, a.From, v.Heartbeat, age)
		}
	}
	return w.wronglyFound(r, truth, known)
}

// wronglyFound compares who can take work. Who has not been heard of need not be among them.
func (w *world) wronglyFound(r *replica, truth map[string]is, known bool) string {
	a, err := r.FindAvailable(context.Background(), 0)
	if err != nil || a.Age > 0 || !known {
		return ""
	}
	for _, f := range a.Value {
		t, exists := truth[f.ID]
		if w.marred[f.ID] {
			continue
		}
		if !exists || !t.online || !t.active || t.sessions != f.Sessions {
			return fmt.Sprintf("%s can take work (from %s, %d sessions), and is online %t, active %t with %d sessions",
				f.ID, a.From, f.Sessions, t.online, t.active, t.sessions)
		}
	}
	return ""
}

// slack is how inexact the age of a sign of life may be: a difference of the stores' clocks is
// measured, and less than a second of it is left alone.
func (w *world) slack() time.Duration {
	if w.redisAhead == w.sourceAhead {
		return 0
	}
	return 1500 * time.Millisecond
}

// age is how long ago the last sign of life of a mitra was acknowledged. The source hears of those
// that Redis took when they are copied, which time that is moved on does not wait for.
func (w *world) age(id string, from availability.Origin) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from == availability.FromPostgres {
		return time.Since(w.signs[id].source)
	}
	return time.Since(w.signs[id].last())
}

// acknowledged notes a sign of life that was sent at a time.
func (w *world) acknowledged(id string, at time.Time, byRedis bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.signs[id]; byRedis {
		s.redis = at
	} else {
		s.source = at
	}
	w.Count("signs of life", 1)
}

// lost notes that the signs of life of one path are lost.
func (w *world) lost(byRedis, atSource bool, ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if byRedis {
			w.signs[id].redis = time.Time{}
		}
		if atSource {
			w.signs[id].source = time.Time{}
		}
	}
}

// voidSigns forgets the signs of life of whoever is offline: to be online again takes others.
func (w *world) voidSigns() {
	truth, known := w.truth()
	for id, t := range truth {
		if known && !t.online {
			w.lost(true, true, id)
		}
	}
}

// flip is a mitra who went offline for silence.
type flip struct {
	mitra string
	at    time.Time
	back  bool // the program, or the mitra itself, set it online again since
}

// flips takes those that the oracle has not judged yet.
func (w *world) flips() (flips []flip) {
	rows, err := w.db.Query(context.Background(), "DELETE FROM search_flips RETURNING mitra::text, at, back")
	if err != nil {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var f flip
		if rows.Scan(&f.mitra, &f.at, &f.back) != nil {
			return flips
		}
		flips = append(flips, f)
	}
	return flips
}

// judgeFlips demands of whoever went offline for silence that nobody had acknowledged a sign of
// life, or that it is online again soon.
func (w *world) judgeFlips() {
	for _, f := range w.flips() {
		w.mu.Lock()
		w.Count(offline, 1)
		s := *w.signs[f.mitra]
		emptied := w.gone.Sub(f.at).Abs() < 500*time.Millisecond
		w.mu.Unlock()
		age := f.at.Sub(s.last())
		if emptied { // Redis lost what it took, and nothing else
			age = f.at.Sub(s.source)
		}
		w.say("  %s went offline, its last sign of life was acknowledged %s before", f.mitra, age)
		if age > staleAfter-w.slack() || f.back {
			continue
		}
		back := func() bool {
			truth, known := w.truth()
			return !known || truth[f.mitra].online
		}
		for over := w.patience(within); !back(); {
			if over() {
				w.found("%s was set offline, and %s before a sign of life was acknowledged (Redis %s, PostgreSQL %s)",
					f.mitra, age, f.at.Sub(s.redis), f.at.Sub(s.source))
			}
			<-time.After(pollEvery)
		}
	}
	rows, err := w.db.Query(context.Background(), "DELETE FROM search_excess RETURNING mitra::text, sessions, most")
	if err != nil {
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var sessions, most int
		if rows.Scan(&id, &sessions, &most) == nil {
			w.found("%s was given session %d of %d", id, sessions, most)
		}
	}
}

// compare has a comparison run. What no trigger saw, and what was changed in Redis by hand, is
// right from then on.
func (w *world) compare() bool {
	if report, ran := w.pass("availability_reconcile"); ran && report.Outcome == janitor.Done {
		whole := w.rdb.Exists(context.Background(), "mitras:seeded").Val() == 1
		if whole {
			w.unseen, w.all, w.marred = false, false, map[string]bool{}
			w.count("comparisons")
		}
		return whole
	}
	return false
}

// rests ends all faults, and demands that both stores have the same.
func (w *world) rests() {
	w.say("rest")
	w.mend()
	w.look()
	w.copiedLate()
	if w.unseen || w.all || len(w.marred) > 0 {
		w.until("a comparison ends", 20*time.Second, func() bool {
			w.deleteKept()
			return w.compare()
		})
		w.look()
	}
	var found []string
	for over := w.patience(feedLease + within + time.Second); ; <-time.After(pollEvery) {
		w.deleteKept()
		if found = w.differences(); len(found) == 0 {
			break
		}
		if over() {
			w.found("at rest: %s", strings.Join(found, "\n"))
		}
	}
	w.until("every answer is current", 20*time.Second, func() bool {
		return !slices.ContainsFunc(w.replicas, func(r *replica) bool {
			a, err := r.CountOnline(context.Background())
			return err != nil || a.Age > 0
		})
	})
	w.count("at rest")
}

// silence demands that whoever is silent goes offline.
func (w *world) silence() {
	w.say("silence")
	w.advance(time.Hour)
	w.until("a sweep for silence ends, and nobody is online", 20*time.Second, func() bool {
		report, ran := w.pass("availability_offline")
		if ran && report.Outcome != janitor.Done { // holds pass
			w.advance(20 * time.Minute)
		}
		truth, known := w.truth()
		return ran && report.Outcome == janitor.Done && known &&
			!slices.ContainsFunc(w.ids, func(id string) bool { return truth[id].online })
	})
	w.look()
}

// deleteKept deletes the keys that the mirror names and leaves to an operator to decide about.
func (w *world) deleteKept() {
	for _, r := range w.replicas {
		if _, named, is := strings.Cut(r.Health().FeedError, "choose another prefix: "); is {
			for one := range strings.SplitSeq(named, ", ") {
				key, _, _ := strings.Cut(one, " (")
				w.rdb.Del(context.Background(), key)
			}
		}
	}
}

// differences are those of Redis and PostgreSQL, and of the states and the tables.
func (w *world) differences() []string {
	found := pgtest.Differences(context.Background(), w.db, w.rdb, "", w.sourceAhead-w.redisAhead+w.slack())
	if len(found) > 0 {
		for _, r := range w.replicas {
			found = append(found, fmt.Sprintf("%s: %+v", r.name, r.Health()))
		}
	}
	return found
}
