package workforce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// Truth compares a workforce with the stores. It only reads.
type Truth struct {
	Force  *Force
	DB     *pgxpool.Pool
	Redis  redis.UniversalClient
	Prefix string // of Redis' keys
}

const page = 500

// InRedis counts mitras online in Redis.
func (t *Truth) InRedis(ctx context.Context) (int, error) {
	n, err := t.Redis.SCard(ctx, t.Prefix+"mitras:online").Result()
	if err != nil {
		return 0, fmt.Errorf("workforce: read Redis: %w", err)
	}
	return int(n), nil
}

// InPostgres counts mitras online in Postgres.
func (t *Truth) InPostgres(ctx context.Context) (n int, err error) {
	err = t.DB.QueryRow(ctx, `SELECT count(*) FROM mitra_online_status WHERE is_online`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("workforce: read Postgres: %w", err)
	}
	return n, nil
}

type place struct {
	online   bool
	sessions int
	version  int64
	marked   bool // by an auto-offline in progress
}

type sides struct {
	postgres, redis             map[string]place
	sessions                    map[string]Session // in Postgres
	onlineRedis, onlinePostgres int                // including mitras that are not ours
	most                        int                // of one mitra
}

// Differences lists where apps and stores disagree, as they do while anything is in progress.
func (t *Truth) Differences(ctx context.Context) ([]string, error) {
	s, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	return t.Force.differences(&s), nil
}

func (f *Force) differences(s *sides) (found []string) {
	wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if n := f.Unsure(); n > 0 {
		wrong("%d apps and sessions wait for an answer", n)
	}
	for _, id := range f.IDs() {
		p, r := s.postgres[id], s.redis[id]
		if online, sure := f.byID[id].expected(); sure && online != p.online {
			wrong("%s: online is %t as its app knows, %t in Postgres", id, online, p.online)
		}
		if p.online != r.online {
			wrong("%s: online is %t in Postgres, %t in Redis", id, p.online, r.online)
		}
		if p.sessions != r.sessions {
			wrong("%s: %d sessions in Postgres, %d in Redis", id, p.sessions, r.sessions)
		}
		if p.sessions > s.most {
			wrong("%s: %d sessions, and %d is the most", id, p.sessions, s.most)
		}
		if p.version != r.version {
			wrong("%s: version %d in Postgres, %d in Redis", id, p.version, r.version)
		}
		if r.marked && !p.online {
			wrong("%s: offline, and still marked as silent", id)
		}
	}
	known, unsure := f.known()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if !unsure[id] && s.sessions[id] != known[id] {
			wrong("session %s: %v as the dispatcher knows, %v in Postgres", id, known[id], s.sessions[id])
		}
	}
	if s.onlineRedis != s.onlinePostgres {
		wrong("%d are online in Postgres, %d in Redis", s.onlinePostgres, s.onlineRedis)
	}
	return found
}

func (f *Force) known() (sessions map[string]Session, unsure map[string]bool) {
	d := &f.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.sessions), maps.Clone(d.unsure)
}

func (t *Truth) read(ctx context.Context) (s sides, err error) {
	s = sides{
		postgres: make(map[string]place), redis: make(map[string]place), sessions: make(map[string]Session),
	}
	ids := t.Force.IDs()
	known, _ := t.Force.known()
	if err := t.readPostgres(ctx, &s, ids, slices.Collect(maps.Keys(known))); err != nil {
		return s, fmt.Errorf("workforce: read Postgres: %w", err)
	}
	for part := range slices.Chunk(ids, page) {
		if err := t.readRedis(ctx, &s, part); err != nil {
			return s, fmt.Errorf("workforce: read Redis: %w", err)
		}
	}
	if s.onlineRedis, err = t.InRedis(ctx); err == nil {
		s.onlinePostgres, err = t.InPostgres(ctx)
	}
	return s, err
}

func (t *Truth) readPostgres(ctx context.Context, s *sides, ids, sessions []string) error {
	rows, err := t.DB.Query(ctx, `SELECT m.id::text, coalesce(o.is_online, false), coalesce(a.version, 0),
			(SELECT count(*) FROM chat_sessions c
			  WHERE c.mitra_id = m.id AND c.status IN ('active', 'pending_payment'))
		  FROM mitras m LEFT JOIN mitra_online_status o ON o.mitra_id = m.id
		  LEFT JOIN mitra_availability a ON a.mitra_id = m.id WHERE m.id = ANY ($1)`, ids)
	if err != nil {
		return err
	}
	var id string
	var p place
	_, err = pgx.ForEachRow(rows, []any{&id, &p.online, &p.version, &p.sessions}, func() error {
		s.postgres[id] = p
		return nil
	})
	if err != nil {
		return err
	}
	rows, err = t.DB.Query(ctx, `SELECT id::text, coalesce(mitra_id::text, ''), status::text
		  FROM chat_sessions WHERE id = ANY ($1)`, sessions)
	if err != nil {
		return err
	}
	var has Session
	_, err = pgx.ForEachRow(rows, []any{&id, &has.Mitra, &has.Status}, func() error {
		s.sessions[id] = has
		return nil
	})
	if err != nil {
		return err
	}
	return t.DB.QueryRow(ctx, `SELECT (value #>> '{}')::integer FROM app_config
		 WHERE key = 'max_customers_per_mitra'`).Scan(&s.most)
}

func (t *Truth) readRedis(ctx context.Context, s *sides, ids []string) error {
	prefix := t.Prefix
	members, counters := make([]any, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		members[i], counters[i] = id, prefix+"mitra:capacity:"+id
	}
	pipe := t.Redis.TxPipeline()
	online := pipe.SMIsMember(ctx, prefix+"mitras:online", members...)
	capacity := pipe.MGet(ctx, counters...)
	versions := pipe.HMGet(ctx, prefix+"mitras:version", ids...)
	marks := pipe.HMGet(ctx, prefix+"mitras:condemned", ids...)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i, id := range ids {
		p := place{online: online.Val()[i], marked: marks.Val()[i] != nil}
		if text, ok := capacity.Val()[i].(string); ok {
			if _, err := fmt.Sscan(text, &p.sessions); err != nil {
				return fmt.Errorf("%s: %w", counters[i], err)
			}
		}
		if text, ok := versions.Val()[i].(string); ok {
			if _, err := fmt.Sscan(text, &p.version); err != nil {
				return fmt.Errorf("the version of %s: %w", id, err)
			}
		}
		s.redis[id] = p
	}
	return nil
}

// Offlined is a mitra that was set offline without asking for it.
type Offlined struct {
	Mitra string
	At    time.Time // by Postgres' clock
	// Silent is the time since it sent its last sign of life that had been acknowledged by then.
	Silent time.Duration
}

// Offlined returns from Postgres' log who was set offline since then without asking.
func (t *Truth) Offlined(ctx context.Context, since time.Time) ([]Offlined, error) {
	rows, err := t.DB.Query(ctx, `SELECT mitra_id::text, created_at::timestamptz FROM mitra_online_logs
		 WHERE status = 'offline' AND created_at >= $1 AND mitra_id = ANY ($2) ORDER BY created_at`,
		since, t.Force.IDs())
	if err != nil {
		return nil, fmt.Errorf("workforce: read the log: %w", err)
	}
	var all []Offlined
	var o Offlined
	_, err = pgx.ForEachRow(rows, []any{&o.Mitra, &o.At}, func() error {
		if found, ok := t.Force.offlined(o.Mitra, o.At); ok {
			all = append(all, found)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("workforce: read the log: %w", err)
	}
	return all, nil
}

// offlined is false if the app asked for it.
func (f *Force) offlined(id string, at time.Time) (o Offlined, ok bool) {
	a := f.byID[id]
	if a == nil || a.wasAsked(at) {
		return o, false
	}
	silent, known := a.silentFor(at)
	if !known {
		return o, false // from an earlier simulation
	}
	return Offlined{id, at, silent}, true
}

// Overruled returns those set offline less than staleAfter after an acknowledged sign of life.
// There must be none.
func Overruled(all []Offlined, staleAfter time.Duration) []Offlined {
	return slices.DeleteFunc(slices.Clone(all), func(o Offlined) bool { return o.Silent >= staleAfter })
}
