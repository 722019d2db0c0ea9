package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/episodes"
)

const (
	// staleAfter is stale_after_seconds, and shortStale the least that makes sense.
	staleAfter = 20 * time.Second
	shortStale = 2 * time.Second
	// within is how soon every answer has what is committed, or says that it may be old: a second, and
	// what a busy machine takes.
	within = 3 * time.Second
	// feedLease is how long replicas wait for one that fed the mirror, and died.
	feedLease = 3 * time.Second
	// pollEvery is the pause between two looks at what has to come.
	pollEvery = 5 * time.Millisecond
	// mitrasOf is fewer than those of whom most may not go offline at once.
	mitrasOf = 5
)

// world is one episode: both stores, two replicas, and what the oracle knows.
type world struct {
	*servers
	t   *testing.T
	rng *rand.Rand
	// How far the clocks of the stores are ahead of the replicas', which are the oracle's as well.
	redisAhead, sourceAhead time.Duration

	db       *pgxpool.Pool
	replicas []*replica
	lives    int
	ids      []string
	hung     []*hung

	copied  bool      // there is a backup of the database
	data    string    // a copy of all that PostgreSQL had, "": none
	child   bool      // chat_sessions has one
	came    time.Time // when the child did
	pinging bool      // heartbeats are required
	mending bool      // states are about to be repaired, and no look found them right since

	unseen bool            // rows changed that no trigger saw, and no comparison ran since
	marred map[string]bool // mitras whose keys were changed by hand, and no comparison ran since
	all    bool            // keys that all share were
	moved  [2]time.Time    // when time was last moved on: nothing is of any time between

	during atomic.Pointer[func()] // runs once, before the next auto-offline commits

	mu    sync.Mutex // what follows: janitors and steps touch it at once
	signs map[string]*sign
	gone  time.Time // when Redis was last emptied
	trace []string
	episodes.Tally
}

// sign is when a mitra last gave signs of life that were acknowledged.
type sign struct{ redis, source time.Time }

func (s *sign) last() time.Time {
	if s.redis.After(s.source) {
		return s.redis
	}
	return s.source
}

// hung is a transaction that is open, and the mitras whose rows it holds.
type hung struct {
	tx    pgx.Tx
	holds []string
	all   bool
	steps int // that it has lasted
}

// skews are how far two clocks may be apart. Less than a second is not corrected.
var skews = []time.Duration{0, 0, 0, 3 * time.Second, 3 * time.Minute, time.Hour}

func (w *world) skew() time.Duration {
	d := skews[w.rng.IntN(len(skews))]
	if w.chance(1, 2) {
		return -d
	}
	return d
}

func newWorld(t *testing.T, s *servers, seed uint64) *world {
	w := &world{
		servers: s, t: t, rng: rand.New(rand.NewPCG(seed, 3)), pinging: true,
		signs: map[string]*sign{}, marred: map[string]bool{},
	}
	w.redisAhead, w.sourceAhead = w.skew(), w.skew()
	if w.chance(1, 3) { // the replicas' own clock is the odd one
		w.sourceAhead = w.redisAhead
	}
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	require.NoError(t, s.rdb.Save(t.Context()).Err())        // a restart must not bring back another world's instances
	require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err()) // lines put others before them
	require.NoError(t, s.copyDatabase(t.Context(), template, present))
	w.connect()
	w.must(`UPDATE app_config SET value = to_jsonb($1::int) WHERE key = 'stale_after_seconds'`, int(staleAfter.Seconds()))
	w.must(`UPDATE app_config SET value = '1' WHERE key = 'heartbeat_cadence_seconds'`)
	for range mitrasOf {
		a, b := w.rng.Uint64(), w.rng.Uint64()
		id := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", uint32(a), uint16(a>>32), a>>52, b&0xfff, b>>16)
		w.ids = append(w.ids, id)
		w.signs[id] = &sign{}
		w.must("INSERT INTO mitras (id) VALUES ($1)", id)
	}
	w.must("INSERT INTO chat_sessions (status) SELECT 'searching' FROM generate_series(1, 8)")
	w.replicas = []*replica{w.start("a"), w.start("b")}
	w.say("Redis is %s ahead, PostgreSQL %s", w.redisAhead, w.sourceAhead)
	w.begin()
	return w
}

// begin waits until the replicas know the mirror, and has the witness listen.
func (w *world) begin() {
	for _, r := range w.replicas {
		w.until("replica "+r.name+" knows the mirror", time.Minute, func() bool {
			select {
			case <-r.Ready():
				return true
			default:
				return false
			}
		})
	}
	w.advance(time.Hour)
	for _, id := range w.ids {
		w.online(w.replica(), id)
	}
}

// connect connects to the present database.
func (w *world) connect() {
	if w.db != nil {
		w.db.Close()
	}
	c, err := pgxpool.ParseConfig(w.pg.URL(present))
	require.NoError(w.t, err)
	c.ConnConfig.RuntimeParams["lock_timeout"] = "100"
	c.ConnConfig.RuntimeParams["statement_timeout"] = "3000"
	w.db, err = pgxpool.NewWithConfig(context.Background(), c)
	require.NoError(w.t, err)
}

func (w *world) close() {
	for _, h := range w.hung {
		_ = h.tx.Rollback(context.Background()) // or its connection has ended
	}
	var stopped sync.WaitGroup
	for _, r := range w.replicas {
		r.line.cut.Store(false) // to say goodbye
		stopped.Go(r.stop)
	}
	stopped.Wait()
	w.db.Close()
	w.discard(w.data)
}

// finding is what is wrong.
type finding string

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// count counts something, where mu is not held.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Count(what, 1)
}

// found ends the episode.
func (w *world) found(format string, args ...any) {
	w.say(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	panic(finding(strings.Join(w.trace[max(0, len(w.trace)-60):], "\n")))
}

func (w *world) chance(n, of int) bool { return w.rng.IntN(of) < n }

// until waits for what has to come, and is a finding if it does not.
func (w *world) until(what string, d time.Duration, f func() bool) {
	for over := w.patience(d); !f(); {
		if over() {
			w.found("waited in vain until %s", what)
		}
		<-time.After(pollEvery)
	}
}

// away reports whether an error is of a PostgreSQL that does not serve now.
func away(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) { // shutting down, starting, recovering; another is connected
		return strings.HasPrefix(refused.Code, "57P") || refused.Code == "55006" || refused.Code == "3D000"
	}
	var broken net.Error
	return errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "conn closed")
}

// must runs a statement that nothing stands in the way of. It is tried again while PostgreSQL is
// away.
func (w *world) must(sql string, args ...any) {
	w.until(sql, time.Minute, func() bool {
		_, err := w.db.Exec(context.Background(), sql, args...)
		if err != nil && !away(err) {
			w.found("%s: %v", sql, err)
		}
		return err == nil
	})
}

// raw runs a statement as psql does. It may fail: somebody may hold the rows.
func (w *world) raw(sql string, args ...any) bool {
	_, err := w.db.Exec(context.Background(), sql, args...)
	w.say("  %s %v: %v", strings.Join(strings.Fields(sql), " "), args, err)
	return err == nil
}

func (w *world) any() string { return w.ids[w.rng.IntN(len(w.ids))] }

// free is a mitra whose rows nobody holds, if there is one.
func (w *world) free() string {
	id := w.any()
	for range 10 {
		if !w.held(id) {
			break
		}
		id = w.any()
	}
	return id
}

// who is a mitra of whom something is true, if there is one.
func (w *world) who(fits func(t is) bool) string {
	truth, _ := w.truth()
	for _, i := range w.rng.Perm(len(w.ids)) {
		if t, known := truth[w.ids[i]]; known && fits(t) {
			return w.ids[i]
		}
	}
	return w.free()
}

func (w *world) held(id string) bool {
	for _, h := range w.hung {
		if h.all {
			return true
		}
		for _, holds := range h.holds {
			if holds == id {
				return true
			}
		}
	}
	return false
}

func (w *world) replica() *replica { return w.replicas[w.rng.IntN(len(w.replicas))] }
