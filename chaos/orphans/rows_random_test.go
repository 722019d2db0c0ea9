package orphans

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// deck are the faults of which atRandom draws. None of them waits for what is dead to go: the next
// one may come first.
func deck() map[string]func(w *world) {
	drop := func(keys ...string) func(w *world) {
		return func(w *world) {
			w.meddle("DEL", func(p redis.Pipeliner) { p.Del(w.Context(), keys...) })
		}
	}
	rules := []string{"reservations", "queue", "matches", "bots"}
	var marks, states []string
	for _, rule := range rules {
		marks = append(marks, layout.Prefix+"orphan:marks:"+rule)
		states = append(states, layout.Prefix+"orphan:state:"+rule)
	}
	return map[string]func(w *world){
		"leader killed": func(w *world) {
			leader, _ := w.leader()
			w.kill(leader)
			w.work(leader.ID)
		},
		"leader stopped": func(w *world) {
			leader, _ := w.leader()
			leader.Stop()
			harness.Lasting(leaseTTL + time.Second)
			leader.Cont()
		},
		"both killed": func(w *world) {
			for id, k := range w.workers {
				w.kill(k)
				w.work(id)
			}
		},
		"replies lost": func(w *world) {
			leader, _ := w.leader()
			leader.Proxy.LoseReply(harness.BatchesOf(layout), 1)
		},
		"leader cut off": func(w *world) {
			leader, _ := w.leader()
			hold := leader.Proxy.Hold()
			harness.Lasting(leaseTTL + time.Second)
			hold.End()
		},
		"Redis restarted": func(w *world) { w.server.Restart() },
		"Redis stopped": func(w *world) {
			w.server.Stop()
			harness.Lasting(3 * time.Second)
			w.server.Cont()
		},
		"MongoDB away": func(w *world) {
			w.mongo.Lock()
			harness.Lasting(time.Second)
			w.mongo.Unlock()
		},
		"FLUSHALL": func(w *world) {
			w.meddle("FLUSHALL", func(p redis.Pipeliner) { p.FlushAll(w.Context()) })
		},
		"scripts flushed": func(w *world) { w.rdb.ScriptFlush(w.Context()) },
		"listing deleted": drop(listing),
		"bots deleted":    drop(deployed, active),
		"marks deleted":   drop(marks...),
		"states deleted":  drop(states...),
		"lease deleted":   drop(layout.Lease()),
		"witness deleted": drop(layout.Witness()),
		"log deleted":     drop(layout.Log()),
		"nothing":         func(*world) {},
	}
}

// atRandom lets a dozen things break, one soon after the other.
func atRandom(w *world) {
	faults := deck()
	for range 12 {
		w.backend.mu.Lock()
		name := one(w.backend.rand, faults, nil)
		pause := time.Duration(w.backend.rand.IntN(4000)) * time.Millisecond
		w.backend.mu.Unlock()
		w.Logf("%s: %s", time.Since(w.began).Round(time.Millisecond), name)
		w.backend.leak()
		faults[name](w)
		harness.Lasting(pause)
	}
}
