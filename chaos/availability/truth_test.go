package availability

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// recorder has Postgres write down each version that a state ever had, in the transaction that made
// it, and the statement that did. It writes down who went online and offline in the table of the
// service, too: also while triggers are off. It is installed when the program's tables are there.
const recorder = `
CREATE TABLE chaos_history (
  seq bigint GENERATED ALWAYS AS IDENTITY, mitra uuid, version bigint, online boolean, active boolean,
  sessions integer, xid xid8, at timestamptz, by text);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- The judgement that an auto-offline leaves is no version of its own.
  IF TG_OP = 'UPDATE' AND NEW.judged_at IS DISTINCT FROM OLD.judged_at AND
     (NEW.version, NEW.is_online, NEW.is_active, NEW.active_sessions) =
     (OLD.version, OLD.is_online, OLD.is_active, OLD.active_sessions) THEN
    RETURN NULL;
  END IF;
  INSERT INTO chaos_history (mitra, version, online, active, sessions, xid, at, by)
  VALUES (NEW.mitra_id, NEW.version, NEW.is_online, NEW.is_active, NEW.active_sessions,
          pg_current_xact_id(), clock_timestamp(), current_query());
  RETURN NULL;
END $$;
INSERT INTO chaos_history (mitra, version, online, active, sessions, xid, at, by)
  SELECT mitra_id, version, is_online, is_active, active_sessions, changed_xid, clock_timestamp(), 'begin'
    FROM mitra_availability;
CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE ON mitra_availability
  FOR EACH ROW EXECUTE FUNCTION chaos_note();
CREATE TABLE chaos_flips (seq bigint GENERATED ALWAYS AS IDENTITY, mitra uuid, online boolean, by text);
CREATE FUNCTION chaos_flip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos_flips (mitra, online, by) VALUES (NEW.mitra_id, NEW.is_online, current_query());
  RETURN NULL;
END $$;
CREATE TRIGGER chaos_flip AFTER UPDATE ON mitra_online_status FOR EACH ROW
  WHEN (OLD.is_online <> NEW.is_online) EXECUTE FUNCTION chaos_flip();
ALTER TABLE mitra_online_status ENABLE ALWAYS TRIGGER chaos_flip;`

// A change is one version of a mitra, as Postgres committed it.
type change struct {
	seq       int64
	mitra     string
	version   int64
	state     state
	xid       uint64
	at        time.Time // under the lock, before the commit
	committed time.Time // zero: not known
	by        string    // the writer: a function of the program, or raw
}

// A state is what readers are shown of a mitra.
type state struct {
	online, active bool
	sessions       int
}

// A flip of a mitra: online or offline.
type flip struct{ mitra, status string }

// A truth is what Postgres committed.
type truth struct {
	changes []change // by their order
	flips   []flip   // by the program, as the service's table has them
	logs    []flip   // rows of mitra_online_logs, in their order
}

var writer = regexp.MustCompile(`\bavailability_(\w+)\(`)

// raw is the writer of what was done by hand.
const raw = "raw"

func readTruth(ctx context.Context, url string) (t truth, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return t, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return t, err
	}
	rows, err := conn.Query(ctx, `SELECT seq, mitra::text, version, online AND active, active, greatest(sessions, 0),
			xid::text::bigint, at, coalesce(pg_xact_commit_timestamp(xmin), '-infinity') = '-infinity',
			coalesce(pg_xact_commit_timestamp(xmin), at), by
		FROM chaos_history ORDER BY seq`)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		c, unknown := change{}, false
		err := rows.Scan(&c.seq, &c.mitra, &c.version, &c.state.online, &c.state.active, &c.state.sessions, &c.xid,
			&c.at, &unknown, &c.committed, &c.by)
		if err != nil {
			return t, err
		}
		if unknown {
			c.committed = time.Time{}
		}
		if of := writer.FindStringSubmatch(c.by); of != nil {
			c.by = of[1]
		} else {
			c.by = raw
		}
		t.changes = append(t.changes, c)
	}
	if err := rows.Err(); err != nil {
		return t, err
	}
	flips := func(sql string) (all []flip) {
		if err != nil {
			return nil
		}
		rows, failed := conn.Query(ctx, sql)
		if err = failed; err != nil {
			return nil
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f flip, err error) {
			return f, row.Scan(&f.mitra, &f.status)
		})
		return all
	}
	t.flips = flips(`SELECT mitra::text, CASE WHEN online THEN 'online' ELSE 'offline' END FROM chaos_flips
		WHERE by ~ '\mavailability_(set_online|auto_offline|revive)\(' ORDER BY seq`)
	t.logs = flips("SELECT mitra_id::text, status FROM mitra_online_logs ORDER BY id")
	return t, err
}

// byMitra are the changes in the order of their versions.
func (t truth) byMitra() map[string][]change {
	of := map[string][]change{}
	for _, c := range t.changes {
		of[c.mitra] = append(of[c.mitra], c)
	}
	for _, changes := range of {
		slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	}
	return of
}

// A sign is a sign of life that a replica acknowledged, from when it was sent until the answer.
type sign struct{ began, ended time.Time }

// rules are what Postgres' history is judged by.
type rules struct {
	stale  time.Duration
	places int
	signs  map[string][]sign // by mitra
}

// tally is what the judges counted.
type tally struct {
	Wrong                 []string
	versions, flips, logs int
	events, shown, seeds  int
	moves, halves         int // states of reroutes; how many were shown before the other mitra's
}

func (v *tally) wrong(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// judgeTruth judges Postgres' own history: versions are taken once and in order, no place is given
// twice, whoever gave a sign of life is not set offline for silence, and each flip has one log row.
func judgeTruth(t truth, r rules) (v tally) {
	of := t.byMitra()
	for _, id := range sorted(of) {
		var last *change
		for i := range of[id] {
			c := &of[id][i]
			v.versions++
			if c.state.sessions < 0 {
				v.wrong("%s: version %d has %d sessions", id, c.version, c.state.sessions)
			}
			if last != nil && c.version == last.version {
				v.wrong("%s: version %d was taken twice, by %s and %s", id, c.version, last.by, c.by)
			}
			if last != nil && c.seq < last.seq {
				v.wrong("%s: version %d was taken before %d", id, c.version, last.version)
			}
			took := last != nil && c.state.sessions > last.state.sessions || last == nil && c.state.sessions > 0
			if took && c.state.sessions > r.places && c.by == "session" {
				v.wrong("%s: %s gave it session %d of %d", id, c.by, c.state.sessions, r.places)
			}
			if c.by == "auto_offline" && !c.state.online {
				v.flips++
				r.judgeFlip(&v, c, of[id][i+1:])
			}
			last = c
		}
	}
	v.logs = len(t.logs)
	want, have := byMitra(t.flips), byMitra(t.logs)
	for _, id := range sorted(of) {
		if !slices.Equal(have[id], want[id]) {
			v.wrong("%s: flips %v, and log rows %v", id, want[id], have[id])
		}
	}
	return v
}

func byMitra(flips []flip) map[string][]string {
	of := map[string][]string{}
	for _, f := range flips {
		of[f.mitra] = append(of[f.mitra], f.status)
	}
	return of
}

// soon is when a flip is taken back that a heartbeat overrules, whoever dies meanwhile.
const soon = 10 * time.Second

// judgeFlip: a sign that began before the flip, and less than stale before it, was there to be
// seen; unless its mitra was online again when it was answered, or soon, as it took the flip back.
func (r rules) judgeFlip(v *tally, c *change, later []change) {
	until := c.committed
	if until.IsZero() {
		until = c.at
	}
	for _, s := range r.signs[c.mitra] {
		again := slices.ContainsFunc(later, func(l change) bool {
			return l.by == "revive" && s.ended.After(c.at) && l.at.Before(until.Add(soon)) ||
				l.state.online && s.ended.After(until) && l.at.Before(s.ended)
		})
		if s.began.After(c.at.Add(-r.stale)) && s.began.Before(until) && !again {
			v.wrong("%s was set offline at %s (version %d), and gave a sign of life at %s that was acknowledged",
				c.mitra, c.at.Format(clock), c.version, s.began.Format(clock))
			return
		}
	}
}

const clock = "15:04:05.000000"

func sorted[V any](of map[string]V) []string {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
