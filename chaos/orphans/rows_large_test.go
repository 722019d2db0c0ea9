package orphans

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// How large the things are that the workers pass over.
const (
	largeMatches = 8       // not so many that the breaker is asked
	largeRelated = 1_000   // hashes of each
	largeFields  = 100     // of each hash
	largeText    = 3 << 20 // bytes of a match's value
	largeMembers = 200_000 // of a set that is related, and of one in the bin
	largeBin     = 50_000  // entries of the bin whose time is over
)

// slower is how much longer 99 of 100 requests of another client may take than those to an idle
// server beside it.
const slower = 5 * time.Millisecond

// largeThings has the workers delete all of that beside a client that asks every millisecond. Two
// servers are asked, since a busy machine slows both down.
func largeThings(w *world) {
	idle := redistest.Start(w.T).Client()
	waited := map[string]time.Duration{}
	for try := range 3 { // noise only adds
		w.largeBin(try)
		names := w.largeMatches()
		ctx, stop := context.WithCancel(w.Context())
		var asking sync.WaitGroup
		var busy, quiet []time.Duration
		asking.Go(func() { busy = latencies(ctx, w.server.Client()) })
		asking.Go(func() { quiet = latencies(ctx, idle) })
		w.goes(names)
		harness.Eventually(w.T, "what is related is gone", func() bool {
			var last []string
			for _, name := range names {
				last = append(last, name+":submissions", name+":user:u0", name+":user:u"+strconv.Itoa(largeRelated-1))
			}
			return w.rdb.Exists(ctx, last...).Val() == 0
		})
		harness.Eventually(w.T, "the bin is empty", func() bool {
			return w.rdb.ZCard(ctx, layout.Prefix+"orphan:drops:bots").Val() < largeBin/10
		})
		stop()
		asking.Wait()
		require.Greater(w, len(busy), 200)
		waited["busy"], waited["idle"] = p99(busy), p99(quiet)
		w.Logf("%s: the 99th of 100 of %d requests took %s, of %d to the idle server %s",
			time.Since(w.began).Round(time.Millisecond), len(busy), waited["busy"], len(quiet), waited["idle"])
		if waited["busy"] <= waited["idle"]+slower {
			return
		}
	}
	require.LessOrEqual(w, waited["busy"], waited["idle"]+slower, "another client waits for the workers")
}

// latencies are those of a request each millisecond, until ctx ends.
func latencies(ctx context.Context, rdb *redis.Client) (all []time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		begun := time.Now()
		if rdb.Get(ctx, fillKey+"none").Err() == redis.Nil {
			all = append(all, time.Since(begun))
		}
	}
}

func p99(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)*99/100]
}

// largeMatches leaves matches behind that are over, with a large value and many large related keys.
func (w *world) largeMatches() (names []string) {
	b := w.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	text, fields := make([]byte, largeText), make([]any, 0, 2*largeFields)
	for i := range text {
		text[i] = byte('a' + b.rand.IntN(26))
	}
	for i := range largeFields {
		fields = append(fields, "field"+strconv.Itoa(i), "value"+strconv.Itoa(i))
	}
	for range largeMatches {
		name := b.match("ongoing", 0)
		for from := 0; from < largeRelated; from += 100 {
			b.step("", func(ctx context.Context, p redis.Pipeliner) {
				for i := from; i < from+100; i++ {
					p.HSet(ctx, name+":user:u"+strconv.Itoa(i), fields...)
				}
			})
		}
		names = append(names, name)
	}
	for from := 0; from < largeMembers; from += 10_000 {
		members := make([]any, 10_000)
		for i := range members {
			members[i] = from + i
		}
		b.step("", func(ctx context.Context, p redis.Pipeliner) { p.SAdd(ctx, names[0]+":submissions", members...) })
	}
	b.step("", func(ctx context.Context, p redis.Pipeliner) { p.Set(ctx, names[1], text, 0) })
	for _, name := range names {
		id := strings.TrimPrefix(name, "match:")
		b.step("-"+name, nil)
		b.docs[id] = append(b.docs[id][:1:1], bson.E{Key: "status", Value: "finished"},
			bson.E{Key: "endedAt", Value: time.Now().Add(-2 * time.Hour)})
		b.save(b.docs[id])
		b.orphan(name, "")
	}
	return names
}

// largeBin fills the bin of bots with what is to be dropped: many small things, and one large set.
func (w *world) largeBin(try int) {
	const entry = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = ARGV[3] .. ':' .. i
  local aside = 'orphan:bin:' .. id .. ':{bots:state:' .. i .. '}'
  redis.call('SET', aside, 'x')
  redis.call('HSET', KEYS[1], id, cjson.encode({ id = id, name = 'bots:state:' .. i, key = 'bots:state:' .. i,
    aside = aside, expires = -1, at = 1, pass = 1, ['until'] = 2 }))
  redis.call('ZADD', KEYS[2], 2, id)
end`
	keys := []string{layout.Prefix + "orphan:binned:bots", layout.Prefix + "orphan:drops:bots"}
	id := fmt.Sprint("chaos", try)
	for from := 0; from < largeBin; from += 5_000 {
		require.NoError(w, w.rdb.Eval(w.Context(), entry, keys, from, from+4_999, id).Err())
	}
	members := make([]any, largeMembers)
	for i := range members {
		members[i] = i
	}
	aside := "orphan:bin:" + id + ":0:{bots:state:0}"
	_, err := w.rdb.Pipelined(w.Context(), func(p redis.Pipeliner) error {
		p.Del(w.Context(), aside)
		p.SAdd(w.Context(), aside, members...)
		return nil
	})
	require.NoError(w, err)
}
