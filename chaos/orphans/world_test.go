package orphans

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Durations of the workers: the shortest that two busy cores carry.
const (
	interval = 400 * time.Millisecond
	leaseTTL = 2 * time.Second
)

// world is what one row works on.
type world struct {
	*testing.T
	row     row
	began   time.Time
	binary  string
	server  *redistest.Server
	rdb     *redis.Client
	db      *mongotest.DB
	backend *backend
	parts   []string // of the history

	settings map[string]string
	workers  map[string]*worker // by instance; the present process of each
	killed   map[string]bool    // instances of which a process was killed, and what it had counted with it
}

// worker is one process of cmd/cleanup, behind a proxy of its own.
type worker struct {
	*harness.Replica
	batches *proxy.Score // what the server answered to its deletes
}

// rulesFile has the shipped rules, with a shorter grace.
func rulesFile(t *testing.T) string {
	t.Helper()
	pack, _ := rules.Pack("colyseus")
	text := string(pack)
	require.Equal(t, 2, strings.Count(text, "grace: 60s"))
	text = strings.ReplaceAll(text, "grace: 60s", "grace: 1s")
	// What only its expiry calls old has to be condemned for that long, too.
	require.Contains(t, text, "over: 120s")
	text = strings.ReplaceAll(text, "over: 120s", "over: 1s")
	// Of the queue and the matches: the one's default is a minute, the other's none.
	require.Contains(t, text, "  members: {zset: \"queue:elo\", as: user}\n")
	text = strings.Replace(text, "  members: {zset: \"queue:elo\", as: user}\n",
		"  members: {zset: \"queue:elo\", as: user}\n  grace: 1s\n", 1)
	// What is large goes only into a bin.
	require.Contains(t, text, "  keys: \"match:{match}\"\n")
	text = strings.Replace(text, "  keys: \"match:{match}\"\n", "  keys: \"match:{match}\"\n  bin: 1h\n", 1)
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func newWorld(t *testing.T, binary string, r row) *world {
	w := &world{T: t, row: r, began: time.Now(), binary: binary, workers: map[string]*worker{}, killed: map[string]bool{}}
	w.db = mongotest.Database(t)
	w.server = redistest.Start(t, history.AppendOnly()...)
	w.parts = []string{w.server.Dir()}
	w.rdb = redis.NewClient(&redis.Options{Addr: w.server.Addr(), MaxRetries: -1})
	w.backend = newBackend(t, w.rdb, w.db.Collection("matches"), harness.Seed())
	t.Cleanup(func() { _ = w.rdb.Close() })
	w.settings = map[string]string{
		"RULES": rulesFile(t), "MONGODB_URI": w.db.URI, "HTTP_ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
		"CLEANUP_INTERVAL": interval.String(), "CLEANUP_LEASE_TTL": leaseTTL.String(), "CLEANUP_REDIS_SHARE": "1",
		"HEARTBEAT_INTERVAL": "500ms", "HEARTBEAT_TTL": "2s",
	}
	return w
}

// work starts a worker, or another process of it.
func (w *world) work(id string) *worker {
	w.Helper()
	p := harness.NewProxy(w.T, w.server.Addr())
	k := &worker{batches: p.Answers(harness.BatchesOf(layout))}
	k.Replica = harness.Launch(w.T, w.binary, id, p, w.settings)
	w.workers[id] = k
	harness.Eventually(w, "worker "+id+" serves", func() bool {
		k.HTTP = k.Said("serving HTTP", "addr")
		return k.HTTP != "" || !k.Runs()
	})
	require.True(w, k.Runs(), k.Log())
	return k
}

// leader waits until a worker leads, and returns it with the other.
func (w *world) leader() (leader, other *worker) {
	w.Helper()
	harness.Eventually(w, "a worker leads", func() bool {
		holder, _, _ := strings.Cut(w.rdb.Get(w.Context(), layout.Lease()).Val(), "/")
		leader = w.workers[holder]
		return leader != nil
	})
	for _, k := range w.workers {
		if k != leader {
			other = k
		}
	}
	return leader, other
}

// meddle does something by the test's own hand, which the oracle does not judge.
func (w *world) meddle(what string, do func(p redis.Pipeliner)) {
	w.Helper()
	_, err := w.rdb.TxPipelined(w.Context(), func(p redis.Pipeliner) error {
		p.Set(w.Context(), history.FaultKey, what, 0)
		do(p)
		return nil
	})
	require.NoError(w, err)
}

// goes waits until what is dead has gone: some of it, or all if nil.
func (w *world) goes(some []string) {
	w.Helper()
	left := some
	ok := harness.Becomes(func() bool { left = w.backend.left(some); return len(left) == 0 })
	require.True(w, ok, "what is dead does not go: %v", left)
	w.Logf("%s: what is dead has gone", time.Since(w.began).Round(time.Millisecond))
}

// removed is what a worker says that it has removed, by rule.
func (w *world) removed(k *worker) (byRule map[string]uint64) {
	body, err := k.Get("/api/v1/stats")
	require.NoError(w, err)
	var stats struct {
		CumulativeStats struct{ ByRule map[string]uint64 }
	}
	require.NoError(w, json.Unmarshal(body, &stats))
	return stats.CumulativeStats.ByRule
}

// run is what is the same in each row: two workers beside a living backend delete what is dead;
// then comes the fault, and after it they do so again. Then the oracle judges.
func (w *world) run() {
	defer func() {
		if w.Failed() { // whatever was waited for in vain: what came of it?
			w.oracle()
		}
	}()
	w.backend.live(!w.row.loses)
	w.work("one")
	w.work("two")
	var living sync.WaitGroup
	ctx, stop := context.WithCancel(w.Context())
	defer living.Wait()
	defer stop()
	living.Go(func() { w.backend.run(ctx) })
	w.goes(w.backend.leak())

	w.backend.leak()
	w.row.fault(w)
	w.backend.leak()
	stop()
	living.Wait()
	w.backend.heal()
	w.goes(nil)
	w.judge()
}

// oracleRejects is what a row says whose history is wrong.
const oracleRejects = "the oracle rejects"

// oracle judges the history so far.
func (w *world) oracle() verdict {
	w.Helper()
	h, err := history.Read(w.parts...)
	require.NoError(w, err)
	v := judge(h, tolerated{evictions: w.row.evicts})
	require.Empty(w, v.Wrong, oracleRejects)
	return v
}

// judge lets the oracle judge the history, and compares all that counts.
func (w *world) judge() {
	w.Helper()
	var v verdict
	evicted := uint64(0)
	// What has gone, and was not answered, is counted when the leader has asked again.
	counted := func() bool {
		v = w.oracle()
		total := uint64(0)
		for _, n := range v.Records {
			total += n
		}
		var err error
		evicted, err = w.rdb.HGet(w.Context(), layout.Witness(), "evicted_total").Uint64()
		require.NoError(w, err)
		if !w.row.loses && evicted != total {
			return false
		}
		for id, k := range w.workers {
			sum := uint64(0)
			for _, n := range w.removed(k) {
				sum += n
			}
			if !w.row.loses && !w.killed[id] && sum != v.Records[id] {
				return false
			}
		}
		return true
	}
	ok := harness.Becomes(counted)
	w.Logf("%s: counted", time.Since(w.began).Round(time.Millisecond))
	for id, k := range w.workers {
		w.Logf("worker %s says %v, the log says %d", id, w.removed(k), v.Records[id])
	}
	require.True(w, ok, "the witness counts %d, the log %v", evicted, v.Records)
	for _, rule := range []string{"reservations", "queue", "matches", "bots"} {
		require.NotZero(w, v.Rules[rule], rule)
	}
	require.Greater(w, v.Steps, 100, "a backend that does not live proves nothing")
	w.Logf("%d steps of the backend, %d terms, %v went, %d were evicted",
		v.Steps, v.Terms, v.Rules, v.Evicted)
}
