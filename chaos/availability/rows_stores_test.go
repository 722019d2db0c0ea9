package availability

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
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

// postgresKilled kills Postgres with all its connections, in the middle of everything, for longer
// than a mitra may be silent. Who pings is online all the time: heartbeats need no Postgres.
func postgresKilled(w *world) {
	w.pg.Kill()
	lasting()
	for _, id := range sorted(w.replicas) {
		_, from, err := w.available(w.Context(), w.replicas[id].HTTP)
		require.NoError(w, err)
		require.Equal(w, "valkey", from)
	}
	w.pg.Restart()
}

// postgresFrozen answers nothing for longer than anybody waits, and goes on then.
func postgresFrozen(w *world) {
	w.pg.Stop()
	harness.Lasting(7 * time.Second)
	w.pg.Cont()
}
