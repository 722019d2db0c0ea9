package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// rooms are those of the game backend; all are listed.
const rooms = 1000

// orphans is one pass of a rule over candidates that live, and one over some that do not.
func orphans(r *rig) {
	r.section("Orphans: one pass of a rule")
	r.say("Candidates: reservations, each JSON that names one of %d rooms. The floor is a bare SCAN with the same look-ups, "+
		"GET and HEXISTS, in pipelines of 500. Ours is a pass of the shipped rule at a full share of Redis.", rooms)
	for _, n := range r.fullScans {
		if n > 1_000_000 {
			continue
		}
		r.clear()
		r.warm()
		r.reserve(n)
		var found orphan.Result
		jan := r.cleaner(&found)
		results := r.compare(
			way{name: "SCAN, GET and HEXISTS", kind: floor, run: func() cost {
				return r.withHeap(n, func() { r.lookUpAll(n) })
			}},
			way{name: "a pass of the rule", kind: ours, run: func() cost {
				c := r.withHeap(n, func() { jan.pass() })
				require.GreaterOrEqual(r.t, found.Scanned, n)
				require.Zero(r.t, found.Condemned)
				return c
			}},
		)
		jan.stop()
		r.say("### %s candidates", many(n))
		r.costs(results)
		r.promise(fmt.Sprintf("orphans among %s: Redis CPU, × SCAN and the same look-ups", many(n)), "%.2f", results[1].cpuRatio, 1.30)
		r.promise(fmt.Sprintf("orphans among %s: our heap over idle, MiB", many(n)), "%.1f",
			results[1].medianOf(func(c cost) float64 { return float64(c.heap) })/(1<<20), 32)
		r.promise(fmt.Sprintf("orphans among %s: longest call, ms", many(n)), "%.2f",
			results[1].medianOf(func(c cost) float64 { return c.longest.Seconds() * 1e3 }), 5)
	}
}

// rulesAtOnce rules share the keyspace in equal parts.
const rulesAtOnce = 40

// manyRules is a cycle of many rules: one walk of the keyspace serves all of them.
func manyRules(r *rig) {
	ctx, n := r.t.Context(), 6*r.gone/50*rulesAtOnce // 240,000 by default
	r.section(fmt.Sprintf("Orphans: a cycle of %d rules", rulesAtOnce))
	r.say("Each of %d rules has %s of %s keys, and each key a sign of life. The floor is one SCAN and an EXISTS for each key, "+
		"in pipelines of %d.", rulesAtOnce, many(n/rulesAtOnce), many(n), batch)
	r.clear()
	r.warm()
	pipe := r.rdb.Pipeline()
	for i := range n {
		pipe.Set(ctx, fmt.Sprintf("queue%02d:job:%06d", i%rulesAtOnce, i/rulesAtOnce), "{}", time.Hour)
		if i%rulesAtOnce == 0 {
			pipe.Set(ctx, fmt.Sprintf("seat:%06d", i/rulesAtOnce), 1, 0)
		}
		if pipe.Len() >= 10_000 || i == n-1 {
			_, err := pipe.Exec(ctx)
			require.NoError(r.t, err)
		}
	}
	var all []rules.Rule
	for i := range rulesAtOnce {
		all = append(all, rules.Rule{
			Name: fmt.Sprintf("queue%02d", i), Keys: fmt.Sprintf("queue%02d:job:{id}", i), Grace: time.Minute,
			KeepIf: []rules.Sign{{Exists: "seat:{id}"}},
		})
	}
	var passed sync.Map
	jan := r.cleans(func(result orphan.Result) { passed.Store(result.Rule, result.Scanned) }, all...)
	results := r.compare(
		way{name: "SCAN and EXISTS", kind: floor, run: func() cost { return r.withHeap(n, r.existsAll) }},
		way{name: "a cycle of all rules", kind: ours, run: func() cost {
			passed.Clear()
			c := r.withHeap(n, func() { jan.pass() })
			for _, rule := range all {
				scanned, _ := passed.Load(rule.Name)
				require.Equal(r.t, n/rulesAtOnce, scanned, rule.Name)
			}
			return c
		}},
	)
	jan.stop()
	r.costs(results)
	r.promise(fmt.Sprintf("%d rules on %s keys: Redis CPU, × one SCAN and the same look-ups", rulesAtOnce, many(n)), "%.2f",
		results[1].cpuRatio, 1.30)
	r.promise(fmt.Sprintf("%d rules on %s keys: longest call, ms", rulesAtOnce, many(n)), "%.2f",
		results[1].medianOf(func(c cost) float64 { return c.longest.Seconds() * 1e3 }), 5)
}

// longNames is a rule whose condemned candidates have names of 20 KB: more than marks may have.
func longNames(r *rig) {
	const n, size = 5000, 20 << 10
	ctx := r.t.Context()
	r.section("Orphans: members with long names")
	r.say("A set of %s members of %d KB, all condemned, among twice as many that live. The floor reads it with SSCAN.", many(n), size>>10)
	r.clear()
	r.warm()
	for i := range n {
		require.NoError(r.t, r.rdb.SAdd(ctx, "long", fmt.Sprintf("%s%06d", strings.Repeat("x", size), i)).Err())
	}
	for i := range 2 * n { // that live, or the rule would be held
		require.NoError(r.t, r.rdb.SAdd(ctx, "long", strconv.Itoa(i)).Err())
		require.NoError(r.t, r.rdb.Set(ctx, "seat:"+strconv.Itoa(i), 1, 0).Err())
	}
	var found orphan.Result
	jan := r.cleans(func(result orphan.Result) { found = result }, rules.Rule{
		Name: "long", Members: &rules.Members{Set: "long", As: "name"}, Grace: time.Minute, Bin: time.Hour,
		KeepIf: []rules.Sign{{Exists: "seat:{name}"}},
	})
	results := r.compare(
		way{name: "SSCAN", kind: floor, run: func() cost {
			return r.withHeap(20*n, func() {
				for cursor, first := uint64(0), true; first || cursor != 0; first = false {
					var err error
					_, cursor, err = r.rdb.SScan(ctx, "long", cursor, "", 10).Result()
					require.NoError(r.t, err)
				}
			})
		}},
		way{name: "a pass of the rule", kind: ours, run: func() cost {
			c := r.withHeap(20*n, func() { jan.pass() })
			require.GreaterOrEqual(r.t, found.Condemned, n)
			return c
		}},
	)
	jan.stop()
	r.costs(results)
	r.promise("5,000 members of 20 KB: our heap over idle, MiB", "%.1f",
		results[1].medianOf(func(c cost) float64 { return float64(c.heap) })/(1<<20), 64)
	r.promise("5,000 members of 20 KB: longest call, ms", "%.2f",
		results[1].medianOf(func(c cost) float64 { return c.longest.Seconds() * 1e3 }), 5)
}

// existsAll is the bare loop of manyRules.
func (r *rig) existsAll() {
	ctx := r.t.Context()
	for cursor := uint64(0); ; {
		keys, next, err := r.rdb.Scan(ctx, cursor, "", page).Result()
		require.NoError(r.t, err)
		for keys := range slices.Chunk(keys, batch) {
			_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range keys {
					if _, id, ok := strings.Cut(key, ":job:"); ok {
						p.Exists(ctx, "seat:"+id)
					}
				}
				return nil
			})
			require.NoError(r.t, err)
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// reserve writes n reservations, and the rooms that they are for, with one channel held.
func (r *rig) reserve(n int) {
	ctx, pipe := r.t.Context(), r.rdb.Pipeline()
	flush := func() {
		_, err := pipe.Exec(ctx)
		require.NoError(r.t, err)
	}
	for i := range rooms {
		pipe.HSet(ctx, "roomcaches", room(i), `{"clients":2}`)
	}
	for i := range n {
		text, err := json.Marshal(map[string]any{"roomId": room(i % rooms), "roomName": "duel", "matchId": fmt.Sprintf("%024x", i), "problemId": 7})
		require.NoError(r.t, err)
		pipe.Set(ctx, fmt.Sprintf("queue:reservation:user%08d", i), text, time.Hour)
		if pipe.Len() >= 10_000 {
			flush()
		}
	}
	flush()
	sub := r.rdb.Subscribe(ctx, "$"+room(0))
	r.t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(ctx)
	require.NoError(r.t, err)
}

func room(i int) string { return fmt.Sprintf("room%05d", i) }

// cleaner is a replica with the shipped rule for reservations; found is what its last pass found.
func (r *rig) cleaner(found *orphan.Result) *replica {
	for _, rule := range rules.Colyseus() {
		if rule.Name == "reservations" {
			return r.cleans(func(result orphan.Result) { *found = result }, rule)
		}
	}
	return nil
}

// cleans starts a replica whose janitor has the rules, too.
func (r *rig) cleans(passed func(orphan.Result), all ...rules.Rule) *replica {
	p := r.replica("cleaner", func(_ *registry.Config, jc *janitor.Config) {
		set, err := orphan.New(orphan.Config{
			Rules: all, Client: jc.Client, Layout: r.keys, Interval: time.Hour,
			Logger: slog.New(slog.DiscardHandler), Passed: passed,
		})
		require.NoError(r.t, err)
		jc.Sweeps = set.Sweeps()
	})
	for _, rule := range all {
		r.until(func() bool { return p.last(rule.Name).Outcome == janitor.Done })
	}
	return p.leads()
}

// lookUpAll is the bare loop with the bare look-ups.
func (r *rig) lookUpAll(n int) {
	ctx, met := r.t.Context(), 0
	for cursor := uint64(0); ; {
		keys, next, err := r.rdb.Scan(ctx, cursor, "queue:reservation:*", page).Result()
		require.NoError(r.t, err)
		met += len(keys)
		for len(keys) > 0 {
			some := keys[:min(batch, len(keys))]
			keys = keys[len(some):]
			r.lookUp(ctx, some)
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	require.GreaterOrEqual(r.t, met, n)
}

func (r *rig) lookUp(ctx context.Context, keys []string) {
	texts, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.Get(ctx, key)
		}
		return nil
	})
	require.NoError(r.t, err)
	_, err = r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, text := range texts {
			_, id, _ := strings.Cut(text.(*redis.StringCmd).Val(), `"roomId":"`)
			id, _, _ = strings.Cut(id, `"`)
			p.HExists(ctx, "roomcaches", id)
		}
		return nil
	})
	require.NoError(r.t, err)
}
