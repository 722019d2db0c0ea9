package availability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// deck are the faults of which TestEverythingAtRandom draws. None of them waits for anything to
// work: the next one may come first.
func deck() map[string]func(w *world) {
	return map[string]func(w *world){
		"leader killed": func(w *world) {
			leader, _ := w.leader()
			w.kill(leader)
		},
		"leader stopped": func(w *world) {
			leader, other := w.leader()
			w.serve(other.HTTP)
			leader.Stop()
			harness.Lasting(leaseTTL + time.Second)
			leader.Cont()
			w.serveAll()
		},
		"all killed": func(w *world) {
			for _, id := range sorted(w.replicas) {
				w.kill(w.replicas[id])
			}
		},
		"leader cut off from Redis": func(w *world) {
			leader, _ := w.leader()
			hold := leader.Proxy.Hold()
			harness.Lasting(leaseTTL + time.Second)
			hold.End()
		},
		"replies lost": repliesLost,
		"Redis slow":   redisSlow,
		"Redis restarted": func(w *world) {
			w.redis.Kill()
			harness.Lasting(time.Duration(rand.IntN(2000)) * time.Millisecond)
			w.redis.Restart()
		},
		"Redis stopped": func(w *world) {
			w.redis.Stop()
			harness.Lasting(3 * time.Second)
			w.redis.Cont()
		},
		"FLUSHALL":        (*world).flush,
		"scripts flushed": func(w *world) { w.rdb.ScriptFlush(w.Context()) },
		"Postgres killed": func(w *world) { w.pg.Restart() },
		"Postgres frozen": postgresFrozen,
		"Postgres set back": func(w *world) { // as by a failover to a replica that is behind
			before := w.pg.Copy()
			harness.Lasting(time.Duration(rand.IntN(3000)) * time.Millisecond)
			copied := w.pg.RestartOn(before)
			w.lost = append(w.lost, lostTime{copied, time.Now()})
		},
		"triggers off": func(w *world) {
			w.eventually("the tables are changed", `/* `+foreign+` */ SET LOCAL session_replication_role = replica;
				UPDATE chat_sessions SET status = 'completed' WHERE status = 'active' AND random() < 0.3`)
		},
		"TRUNCATE": func(w *world) { w.eventually("TRUNCATE", "TRUNCATE chat_sessions /* "+foreign+" */") },
		"nothing":  func(*world) {},
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

// draw has one thing break that is drawn at random.
func (w *world) draw(r *rand.Rand) {
	w.Helper()
	faults := deck()
	names := sorted(faults)
	name := names[r.IntN(len(names))]
	w.says(name)
	faults[name](w)
	harness.Lasting(time.Duration(r.IntN(3000)) * time.Millisecond)
}

// seed draws the same faults again if ROLLCALL_SEED names it.
var seed = sync.OnceValue(func() uint64 {
	n, err := strconv.ParseUint(os.Getenv("ROLLCALL_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	fmt.Println("ROLLCALL_SEED=" + strconv.FormatUint(n, 10))
	return n
})

// TestEverythingAtRandom breaks one thing after the other for ROLLCALL_DURATION, a minute if that
// is not set. Now and then everything has to work again.
func TestEverythingAtRandom(t *testing.T) {
	redistest.OnlyIfAsked(t)
	t.Parallel()
	lasts := time.Minute
	if text := os.Getenv("ROLLCALL_DURATION"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	r := rand.New(rand.NewPCG(seed(), 31))
	newWorld(t, program(t), row{name: "soak", fault: func(w *world) {
		for end := time.Now().Add(lasts); time.Now().Before(end); {
			for range 6 {
				w.draw(r)
			}
			w.works()
		}
	}}).run()
}
