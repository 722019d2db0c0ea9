package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/workforce"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

var watched = flag.Bool("watched", false, "play TestShow at a pace at which somebody can read along, as make availability does")

// pace has the times of a show.
type pace struct{ stale, ping, beat, ttl, lease, compare, calm time.Duration }

var (
	// hasty is fast enough for a test, and slow enough for a busy machine: a stall of a second is no
	// gap.
	hasty = pace{
		3 * time.Second, 700 * time.Millisecond, 700 * time.Millisecond, 2800 * time.Millisecond,
		2 * time.Second, 2 * time.Second, 0,
	}
	leisurely = pace{
		6 * time.Second, 2 * time.Second, time.Second, 4 * time.Second, 3 * time.Second, 5 * time.Second, 3 * time.Second,
	}
)

const (
	replicas   = 3
	silentApps = 10 // die at once
)

// show is a fleet on servers of its own, with a simulated workforce.
type show struct {
	*testing.T
	pace
	began  time.Time
	mitras int
	pg     *pgtest.Server
	db     *pgtest.DB
	redis  *redistest.Server
	rdb    *redis.Client
	force  *workforce.Force
	all    []*player // that have not been killed
}

// A player is a replica.
type player struct {
	*process.Process
	id, url string
}

// TestShow shows what the program does while things break: apps die without a word, the leader is
// killed, Redis is emptied, Postgres is killed. At the end Redis, Postgres and the apps have to
// agree, and nobody may have been set offline too soon after an acknowledged heartbeat.
func TestShow(t *testing.T) {
	s := &show{T: t, pace: hasty, mitras: 120, began: time.Now()}
	if *watched {
		s.pace, s.mitras = leisurely, 300
	}
	s.pg, s.redis = pgtest.Start(t), redistest.Start(t)
	s.db, s.rdb = s.pg.Database(), s.redis.Client()
	code, _, said := says(t, "migrate", "--database-url="+s.db.URL)
	require.Zero(t, code, said)
	for name, value := range map[string]time.Duration{"stale_after_seconds": s.stale, "heartbeat_cadence_seconds": s.ping} {
		_, err := s.db.Exec(t.Context(), "UPDATE app_config SET value = to_jsonb(greatest(1, $2::int)) WHERE key = $1",
			name, int(value.Seconds()))
		require.NoError(t, err)
	}
	s.says("a PostgreSQL and a Redis of their own run; apps ping every %v, and are offline after %v of silence", s.ping, s.stale)
	for range replicas {
		s.launch()
	}
	s.says("%d replicas serve: each has found the mirror whole, or has seeded it", replicas)
	s.force = workforce.New(workforce.Config{
		Mitras: s.mitras, Targets: s.targets(), Secret: []byte(secret), DB: s.db.Pool, Interval: s.ping,
		Sessions: 10, SessionLasts: 6 * time.Second, Polls: 50, Rest: 0.01, Seed: uint64(s.began.UnixNano()),
	})
	stores := &workforce.Stores{DB: s.db.Pool, Redis: s.rdb}
	ctx, stop := context.WithCancel(t.Context())
	var work conc.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { s.force.Run(ctx) })
	work.Go(func() {
		s.force.Watch(ctx, stores, 2*time.Second, func(line string) { s.says("  | %s", line) })
	})
	s.says("%d mitras go online, 50 customers poll once a second, 10 sessions a second begin", s.mitras)
	s.until("everybody to be online", func() bool { return s.force.Counts().WentOnline >= s.mitras })
	for _, step := range []func(){s.leaderDies, s.redisIsEmptied, s.postgresDies, s.judge} {
		time.Sleep(s.calm) // so that a reader can follow
		step()
	}
}

func (s *show) says(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs  %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
	if *watched {
		fmt.Println(line)
	} else {
		s.Log(line)
	}
}

func (s *show) until(what string, happened func() bool) {
	s.Helper()
	waittest.Until(s.T, 20*time.Millisecond, happened, what)
}

// launch starts a replica, which is this test's binary, without the settings of whoever runs it.
func (s *show) launch() {
	s.Helper()
	id := "replica-" + strconv.Itoa(len(s.all)+1)
	for slices.ContainsFunc(s.all, func(p *player) bool { return p.id == id }) {
		id += "a"
	}
	seconds := func(d time.Duration) string { return fmt.Sprint(d.Seconds()) }
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{
		asMain + "=1", "GOCOVERDIR=" + s.TempDir(), "INSTANCE_ID=" + id, "REDIS_URL=redis://" + s.redis.Addr(),
		"DATABASE_URL=" + s.db.URL, "JWT_HS256_SECRET=" + secret, "HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json",
		"HEARTBEAT_INTERVAL=" + s.beat.String(), "HEARTBEAT_TTL=" + s.ttl.String(),
		"AVAILABILITY_LEASE_TTL=" + s.lease.String(), "MITRA_AUTO_OFFLINE_SWEEP_SECONDS=" + seconds(s.beat),
		"VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=" + seconds(s.compare), "HEARTBEAT_MIRROR_INTERVAL_SECONDS=" + seconds(s.ping),
	}
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(s.TempDir(), id+".log"), OwnGroup: true})
	require.NoError(s, err)
	p := &player{Process: child, id: id}
	s.Cleanup(p.Kill)
	s.until(id+" to serve", func() bool {
		require.True(s, p.Runs(), p.Log())
		p.url = p.Said("serving HTTP", "addr")
		return p.url != ""
	})
	s.all = append(s.all, p)
	if s.force != nil {
		s.force.SetTargets(s.targets()...)
	}
}

func (s *show) targets() (urls []string) {
	for _, p := range s.all {
		urls = append(urls, "http://"+p.url)
	}
	return urls
}

// leads returns the index of the leader, once there is one.
func (s *show) leads() (at int) {
	s.until("a leader", func() bool {
		holder, _, _ := strings.Cut(s.rdb.Get(s.Context(), "janitor:leader").Val(), "/")
		at = slices.IndexFunc(s.all, func(p *player) bool { return p.id == holder })
		return at >= 0
	})
	return at
}

// appsDie returns a wait until all who died are offline in both stores.
func (s *show) appsDie() (silence func()) {
	since, ids := time.Now(), s.force.Kill(silentApps)
	s.says("%d apps DIE without a word", len(ids))
	return func() {
		var gone []time.Duration
		s.until("the dead to be set offline", func() bool {
			gone = nil
			for mitra, silent := range s.offlined(since) {
				if slices.Contains(ids, mitra) && !s.rdb.SIsMember(s.Context(), "mitras:online", mitra).Val() {
					gone = append(gone, silent)
				}
			}
			return len(gone) == len(ids)
		})
		s.says("all %d are offline in Postgres and in the mirror: %.1f to %.1f s after their last heartbeat "+
			"(stale_after is %v)", len(ids), slices.Min(gone).Seconds(), slices.Max(gone).Seconds(), s.stale)
	}
}

func (s *show) leaderDies() {
	at, silence := s.leads(), s.appsDie()
	old := s.all[at]
	s.all = slices.Delete(slices.Clone(s.all), at, at+1)
	old.Kill()
	killed := time.Now()
	s.force.SetTargets(s.targets()...)
	s.says("KILLED the leader %s: whoever called it calls another", old.id)
	s.leads()
	s.says("another leads %.1f s after", time.Since(killed).Seconds())
	silence()
	s.says("a replica is started in its place")
	s.launch()
}

func (s *show) redisIsEmptied() {
	silence := s.appsDie()
	require.NoError(s, s.rdb.FlushAll(s.Context()).Err())
	emptied := time.Now()
	s.says("FLUSHALL: nothing is left in the mirror; reads are answered by Postgres until it is seeded")
	s.until("the mirror to be whole", func() bool { return s.rdb.Exists(s.Context(), "mitras:seeded").Val() == 1 })
	s.says("seeded %.2f s after; heartbeats are gone, so nobody is judged before they have been heard for %v",
		time.Since(emptied).Seconds(), s.stale)
	silence()
}

func (s *show) postgresDies() {
	before := s.force.Counts()
	s.pg.Kill()
	killed := time.Now()
	s.says("Postgres KILLED: heartbeats and reads go on with the mirror alone, changes wait")
	s.until("heartbeats without Postgres", func() bool {
		return s.force.Counts().Heartbeats > before.Heartbeats+s.mitras/2
	})
	time.Sleep(s.calm)
	c := s.force.Counts()
	s.says("%d heartbeats were acknowledged meanwhile, %d requests failed and are made again",
		c.Heartbeats-before.Heartbeats, c.Failed-before.Failed)
	s.pg.Restart()
	s.says("Postgres runs again, %.1f s after", time.Since(killed).Seconds())
	s.until("changes to be taken again", func() bool { return s.force.Counts().Accepted > c.Accepted })
	s.says("sessions are accepted again, %.1f s after", time.Since(killed).Seconds())
}

// differences are where apps and stores disagree, as they do while anything is in progress.
func (s *show) differences() (found []string) {
	online, settled := s.force.Expected()
	if !settled {
		return []string{"some apps have no answer yet"}
	}
	found = pgtest.Differences(s.Context(), s.db.Pool, s.rdb, "", 0)
	rows, err := s.db.Query(s.Context(), "SELECT mitra_id::text, is_online FROM mitra_availability")
	if err != nil {
		return []string{err.Error()}
	}
	var id string
	var is bool
	_, err = pgx.ForEachRow(rows, []any{&id, &is}, func() error {
		if is != online[id] {
			found = append(found, fmt.Sprintf("%s: online %t as its app knows, and %t in Postgres", id, online[id], is))
		}
		return nil
	})
	require.NoError(s, err)
	return found
}

// offlined returns who was set offline since then without asking for it, and the shortest time
// since they sent a sign of life that had been acknowledged by then.
func (s *show) offlined(since time.Time) map[string]time.Duration {
	shortest := map[string]time.Duration{}
	rows, err := s.db.Query(s.Context(), `SELECT mitra_id::text, created_at::timestamptz FROM mitra_online_logs
		 WHERE status = 'offline' AND created_at >= $1`, since)
	require.NoError(s, err)
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		if silent, known := s.force.SilentFor(id, at); known {
			if before, twice := shortest[id]; !twice || silent < before {
				shortest[id] = silent
			}
		}
		return nil
	})
	require.NoError(s, err)
	return shortest
}

func (s *show) judge() {
	s.says("%d dead apps come BACK", s.force.Revive())
	s.force.Quiet()
	var differ []string
	agree := waittest.Becomes(20*time.Millisecond, func() bool {
		differ = s.differences()
		return len(differ) == 0
	})
	require.True(s, agree, "%d differences: %s", len(differ), strings.Join(differ[:min(5, len(differ))], "; "))
	all := s.offlined(s.began)
	require.GreaterOrEqual(s, slices.Min(slices.Collect(maps.Values(all))), s.stale, all)
	c := s.force.Counts()
	s.says("AGREED: %d mitras online in the mirror, in Postgres and as their apps know; every counter of sessions "+
		"and every version is equal", c.Online)
	s.says("  %d heartbeats acknowledged; %d mitras set offline for silence, each for %v or more: "+
		"nobody who pinged", c.Heartbeats, len(all), s.stale)
}
