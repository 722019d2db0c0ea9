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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// How large the things are that the workers pass over.
const (
	largeMatches = 3       // not so many that the breaker is asked
	largeRelated = 5       // hashes of each: in all not so many either
	largeFields  = 100     // of each hash
	largeText    = 3 << 20 // bytes of a match's value
	largeMembers = 200_000 // of a set that is related, and of one in the bin
	largeBin     = 20_000  // entries of the bin whose time is over
)

// A call may touch this much, whatever there is to clean: keys of a script, elements of a page,
// arguments of any.
const (
	mostScriptKeys = 400
	mostArguments  = 1_100
	mostPage       = 1_000
)

// largeThings has the workers delete all of that. Each call that takes Redis longer than a
// millisecond is one of few elements, however busy the machine is: a call of many takes longer.
func largeThings(w *world) {
	lazily := w.lazilyFreed()
	w.largeBin()
	names := w.largeMatches()
	for _, args := range [][]any{
		{"CONFIG", "SET", "slowlog-max-len", 10_000, "slowlog-log-slower-than", 1000},
		{"SLOWLOG", "RESET"}, // of what the test itself has written
	} {
		require.NoError(w, w.rdb.Do(w.Context(), args...).Err())
	}
	ctx, stop := context.WithCancel(w.Context())
	var asking sync.WaitGroup
	long := map[int64]call{}
	asking.Go(func() { w.longCalls(ctx, long) })
	w.goes(names)
	harness.Eventually(w, "what is related is gone", func() bool {
		var last []string
		for _, name := range names {
			last = append(last, name+":submissions", name+":user:u0", name+":user:u"+strconv.Itoa(largeRelated-1))
		}
		return w.rdb.Exists(ctx, last...).Val() == 0
	})
	harness.Eventually(w, "the bin is empty", func() bool {
		return w.rdb.ZCard(ctx, layout.Prefix+"orphan:drops:bots").Val() < largeBin/10
	})
	stop()
	asking.Wait()
	slowest := time.Duration(0)
	for _, c := range long {
		slowest = max(slowest, c.took)
		require.Empty(w, c.unbounded(), "%s", c)
	}
	w.Logf("%s: of %d calls above 1 ms the longest took %s", time.Since(w.began).Round(time.Millisecond), len(long), slowest)
	require.Positive(w, w.lazilyFreed()-lazily, "the large set of the bin is freed behind the scenes")
}

// call is an entry of Redis' slow log.
type call struct {
	args []string // the first 31 at most
	n    int      // how many there are
	took time.Duration
}

func (c call) String() string {
	return fmt.Sprintf("%.300q, of %d arguments, took %s", c.args, c.n, c.took)
}

// unbounded returns what of the call exceeds its bound; "" if nothing does.
func (c call) unbounded() string {
	number := func(i int) int {
		n, _ := strconv.Atoi(c.args[i])
		return n
	}
	switch command := strings.ToLower(c.args[0]); command {
	case "evalsha", "eval":
		if number(2) > mostScriptKeys {
			return "keys of a script"
		}
	case "scan", "hscan", "sscan", "zscan":
		if count := slices.Index(c.args, "count"); count >= 0 && number(count+1) > mostPage {
			return "a page"
		}
	case "smembers", "hgetall", "hkeys", "hvals", "keys", "zrange", "lrange":
		if !strings.Contains(c.args[1], "orphan:state:") && !strings.Contains(c.args[1], "orphan:passes") {
			return "all of a key"
		}
	}
	if c.n > mostArguments {
		return "arguments"
	}
	return ""
}

// longCalls collects the calls that take longer than a millisecond, until ctx ends.
func (w *world) longCalls(ctx context.Context, all map[int64]call) {
	rdb := w.server.Client()
	for {
		entries, err := rdb.SlowLogGet(context.WithoutCancel(ctx), 1_000).Result()
		if !assert.NoError(w, err) {
			return
		}
		for _, e := range entries {
			c := call{args: e.Args, n: len(e.Args), took: e.Duration}
			var more int
			if n, _ := fmt.Sscanf(c.args[len(c.args)-1], "... (%d more arguments)", &more); n == 1 {
				c.args, c.n = c.args[:len(c.args)-1], c.n-1+more
			}
			if c.args[0] != "slowlog" {
				all[e.ID] = c
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lazilyFreed is how many things Redis has freed behind the scenes.
func (w *world) lazilyFreed() (n int64) {
	info, err := w.rdb.InfoMap(w.Context(), "memory").Result()
	require.NoError(w, err)
	_, err = fmt.Sscan(info["Memory"]["lazyfreed_objects"], &n)
	require.NoError(w, err)
	return n
}

// largeMatches leaves matches behind that are over, with a large value and large related keys.
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
		b.step("", func(ctx context.Context, p redis.Pipeliner) {
			for i := range largeRelated {
				p.HSet(ctx, name+":user:u"+strconv.Itoa(i), fields...)
			}
		})
		names = append(names, name)
	}
	for from := 0; from < largeMembers; from += 5_000 {
		members := make([]any, 5_000)
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
func (w *world) largeBin() {
	const entry = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = 'chaos:' .. i
  local aside = 'orphan:bin:' .. id .. ':{bots:state:' .. i .. '}'
  redis.call('SET', aside, 'x', 'NX')
  redis.call('HSET', KEYS[1], id, cjson.encode({ id = id, name = 'bots:state:' .. i, key = 'bots:state:' .. i,
    aside = aside, expires = -1, at = 1, pass = 1, ['until'] = 2 }))
  redis.call('ZADD', KEYS[2], 2, id)
end
return 1`
	const step = 5_000
	for from := 0; from < largeMembers; from += step {
		members := make([]any, step)
		for i := range members {
			members[i] = from + i
		}
		require.NoError(w, w.rdb.SAdd(w.Context(), "orphan:bin:chaos:0:{bots:state:0}", members...).Err())
	}
	keys := []string{layout.Prefix + "orphan:binned:bots", layout.Prefix + "orphan:drops:bots"}
	for from := 0; from < largeBin; from += step {
		require.NoError(w, w.rdb.Eval(w.Context(), entry, keys, from, from+step-1).Err())
	}
}
