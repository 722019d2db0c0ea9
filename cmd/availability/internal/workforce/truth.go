package workforce

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Truth compares a workforce with the stores. It only reads.
type Truth struct {
	Force  *Force
	Redis  redis.UniversalClient // nil: only Postgres is there to look at
	Prefix string                // of Redis' keys
}

// Stores describes how many are online in Redis and in Postgres; "?": no answer.
func (t *Truth) Stores(ctx context.Context) string {
	if t.Redis == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	redis, postgres := "?", "?"
	if n, err := t.Redis.SCard(ctx, t.Prefix+"mitras:online").Result(); err == nil {
		redis = strconv.FormatInt(n, 10)
	}
	_ = t.Force.cfg.DB.QueryRow(ctx, `SELECT count(*)::text FROM mitra_online_status WHERE is_online`).Scan(&postgres)
	return ", mirror " + redis + ", Postgres " + postgres
}

// place is what a store has of a mitra, as text.
type place struct{ online, sessions, version string }

// Differences lists where apps and stores disagree, as they do while anything is in progress.
func (t *Truth) Differences(ctx context.Context) (found []string, err error) {
	stored := map[string]place{}
	rows, err := t.Force.cfg.DB.Query(ctx, `SELECT m.id::text, coalesce(o.is_online, false)::text,
			(SELECT count(*) FROM chat_sessions c
			  WHERE c.mitra_id = m.id AND c.status IN ('active', 'pending_payment'))::text, a.version::text
		  FROM mitras m JOIN mitra_availability a ON a.mitra_id = m.id
		  LEFT JOIN mitra_online_status o ON o.mitra_id = m.id WHERE m.id = ANY ($1)`, t.Force.ids())
	if err != nil {
		return nil, fmt.Errorf("workforce: read Postgres: %w", err)
	}
	var id string
	var p place
	if _, err := pgx.ForEachRow(rows, []any{&id, &p.online, &p.sessions, &p.version}, func() error {
		stored[id] = p
		return nil
	}); err != nil {
		return nil, fmt.Errorf("workforce: read Postgres: %w", err)
	}
	for apps := range slices.Chunk(t.Force.apps, 500) {
		mirrored, err := t.mirrored(ctx, apps)
		if err != nil {
			return nil, fmt.Errorf("workforce: read Redis: %w", err)
		}
		for i, a := range apps {
			online, settled := a.expected()
			if p := stored[a.id]; !settled || p != mirrored[i] || p.online != strconv.FormatBool(online) {
				found = append(found, fmt.Sprintf("%s: online %t as its app knows (settled: %t), %v in Postgres, %v in Redis",
					a.id, online, settled, p, mirrored[i]))
			}
		}
	}
	return found, nil
}

func (t *Truth) mirrored(ctx context.Context, apps []*app) ([]place, error) {
	pipe := t.Redis.TxPipeline()
	var online []*redis.BoolCmd
	var sessions, versions []*redis.StringCmd
	for _, a := range apps {
		online = append(online, pipe.SIsMember(ctx, t.Prefix+"mitras:online", a.id))
		sessions = append(sessions, pipe.Get(ctx, t.Prefix+"mitra:capacity:"+a.id))
		versions = append(versions, pipe.HGet(ctx, t.Prefix+"mitras:version", a.id))
	}
	if _, err := pipe.Exec(ctx); err != nil { // redis.Nil, too: each has a capacity
		return nil, err
	}
	places := make([]place, len(apps))
	for i := range apps {
		places[i] = place{strconv.FormatBool(online[i].Val()), sessions[i].Val(), versions[i].Val()}
	}
	return places, nil
}

// Offlined is a mitra that was set offline without asking for it.
type Offlined struct {
	Mitra string
	At    time.Time // by Postgres' clock
	// Silent is the time since it sent its last sign of life that had been acknowledged by then.
	Silent time.Duration
}

// Offlined returns from Postgres' log who was set offline since then without asking.
func (t *Truth) Offlined(ctx context.Context, since time.Time) (all []Offlined, err error) {
	apps := map[string]*app{}
	for _, a := range t.Force.apps {
		apps[a.id] = a
	}
	rows, err := t.Force.cfg.DB.Query(ctx, `SELECT mitra_id::text, created_at::timestamptz FROM mitra_online_logs
		 WHERE status = 'offline' AND created_at >= $1 AND mitra_id = ANY ($2) ORDER BY created_at`,
		since, t.Force.ids())
	if err != nil {
		return nil, fmt.Errorf("workforce: read the log: %w", err)
	}
	var o Offlined
	_, err = pgx.ForEachRow(rows, []any{&o.Mitra, &o.At}, func() error {
		var known bool
		if o.Silent, known = apps[o.Mitra].silentFor(o.At); known {
			all = append(all, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("workforce: read the log: %w", err)
	}
	return all, nil
}
