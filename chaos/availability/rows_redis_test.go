package availability

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// catch holds the next request of any replica that matches, while something happens.
func (w *world) catch(match func(proxy.Request) bool, begin, meanwhile func()) {
	w.Helper()
	var caught []<-chan proxy.Request
	for _, id := range sorted(w.replicas) {
		c, release := w.replicas[id].Proxy.HoldNext(match)
		defer release()
		caught = append(caught, c)
	}
	begin()
	harness.Eventually(w.T, "a replica sends what is waited for", func() bool {
		for _, c := range caught {
			if len(c) > 0 {
				return true
			}
		}
		return false
	})
	meanwhile()
}

// flushedWhileSeeding empties Redis when all was brought, and is about to be certified.
func flushedWhileSeeding(w *world) {
	for range 3 {
		w.catch(func(r proxy.Request) bool {
			_, args := r.Script()
			return r.On(fed, seeded, "availability:offline") && len(args) > 0 && args[0] == "certify"
		}, w.flush, w.flush)
		w.sameAnswers("valkey")
	}
}

// setAside keeps the history of Redis for the judges, where its next life does not find it.
func (w *world) setAside() {
	w.Helper()
	last := &w.parts[len(w.parts)-1]
	*last = w.TempDir()
	require.NoError(w, history.SetAside(w.redis.Dir(), *last))
	w.parts = append(w.parts, w.redis.Dir())
}

// redisRolledBack has Redis begin anew with a file of some seconds ago, as from a backup.
func redisRolledBack(w *world) {
	const folder = "appendonlydir"
	old := filepath.Join(w.TempDir(), folder)
	w.redis.Stop()
	require.NoError(w, os.CopyFS(old, os.DirFS(filepath.Join(w.redis.Dir(), folder))))
	w.redis.Cont()
	w.works()
	w.redis.Kill()
	w.setAside()
	require.NoError(w, os.CopyFS(filepath.Join(w.redis.Dir(), folder), os.DirFS(old)))
	w.redis.Restart()
	w.sameAnswers("valkey")
}

// redisEvicts has Redis drop any keys it likes, for some seconds.
func redisEvicts(w *world) {
	ctx := w.Context()
	fill := func(n int) {
		_, _ = w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // some are refused
			for i := range n {
				p.Set(ctx, "fill:"+strconv.Itoa(i), strings.Repeat("x", 1000), 0)
			}
			return nil
		})
	}
	fill(100)
	used, err := strconv.Atoi(harness.InfoOf(w.T, w.rdb, "Memory", "used_memory"))
	require.NoError(w, err)
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory-policy", "allkeys-random").Err())
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory", strconv.Itoa(used-60_000)).Err())
	for range 10 {
		fill(100)
		harness.Lasting(300 * time.Millisecond)
	}
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NotEqual(w, "0", harness.InfoOf(w.T, w.rdb, "Stats", "evicted_keys"))
}

// eachProxy applies a rule to the way of every replica to Redis.
func (w *world) eachProxy(rule func(p *harness.Proxy) *proxy.Rule) (end func()) {
	var rules []*proxy.Rule
	for _, id := range sorted(w.replicas) {
		rules = append(rules, rule(w.replicas[id].Proxy))
	}
	return func() {
		for _, r := range rules {
			r.End()
		}
	}
}

// redisSlow has a third of all requests arrive late.
func redisSlow(w *world) {
	end := w.eachProxy(func(p *harness.Proxy) *proxy.Rule { return p.Delay(300 * time.Millisecond) })
	harness.Lasting(8 * time.Second)
	end()
}

// repliesLost loses requests and answers of scripts, some of each.
func repliesLost(w *world) {
	script := func(r proxy.Request) bool { return len(r) > 0 && strings.HasPrefix(r[0], "EVAL") }
	for range 6 {
		lost := w.eachProxy(func(p *harness.Proxy) *proxy.Rule { return p.LoseReply(script, 10) })
		harness.Lasting(400 * time.Millisecond)
		lost()
		lost = w.eachProxy(func(p *harness.Proxy) *proxy.Rule { return p.LoseRequest(script, 10) })
		harness.Lasting(400 * time.Millisecond)
		lost()
	}
}

// everythingAway stops both stores for longer than a mitra may be silent. Nobody who pings is set
// offline by that.
func everythingAway(w *world) {
	w.redis.Stop()
	w.pg.Stop()
	lasting()
	w.pg.Cont()
	w.redis.Cont()
}
