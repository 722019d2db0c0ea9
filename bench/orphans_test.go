package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	for _, n := range r.scans {
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
				require.GreaterOrEqual(r, found.Scanned, n)
				require.Zero(r, found.Condemned)
				return c
			}},
		)
		jan.stop()
		r.say("### %s candidates", many(n))
		r.costs(results)
		r.promiseHeap(fmt.Sprintf("orphans among %s", many(n)), results[1])
		r.promise(fmt.Sprintf("orphans among %s: longest call, ms", many(n)), "%.2f",
			results[1].medianOf(func(c cost) float64 { return ms(c.longest) }), 5)
	}
}

// reserve writes n reservations, and the rooms that they are for, with one channel held.
func (r *rig) reserve(n int) {
	ctx, pipe := r.Context(), r.rdb.Pipeline()
	for i := range rooms {
		pipe.HSet(ctx, "roomcaches", room(i), `{"clients":2}`)
	}
	for i := range n {
		text, err := json.Marshal(map[string]any{"roomId": room(i % rooms), "roomName": "duel", "matchId": fmt.Sprintf("%024x", i), "problemId": 7})
		require.NoError(r, err)
		pipe.Set(ctx, fmt.Sprintf("queue:reservation:user%08d", i), text, time.Hour)
		if pipe.Len() >= 10_000 {
			r.exec(pipe)
		}
	}
	r.exec(pipe)
	sub := r.rdb.Subscribe(ctx, "$"+room(0))
	r.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(ctx)
	require.NoError(r, err)
}

func room(i int) string { return fmt.Sprintf("room%05d", i) }

// cleaner is a replica with the shipped rule for reservations; found is what its last pass found.
func (r *rig) cleaner(found *orphan.Result) *replica {
	all := slices.DeleteFunc(rules.Colyseus(), func(rule rules.Rule) bool { return rule.Name != "reservations" })
	p := r.replica("cleaner", func(_ *registry.Config, jc *janitor.Config) {
		set, err := orphan.New(orphan.Config{
			Rules: all, Client: jc.Client, Layout: r.keys, Interval: time.Hour,
			Logger: slog.New(slog.DiscardHandler), Passed: func(result orphan.Result) { *found = result },
		})
		require.NoError(r, err)
		jc.Sweeps = set.Sweeps()
	})
	r.until(func() bool { return p.last("reservations").Outcome == janitor.Done })
	return p.leads()
}

// lookUpAll is the bare loop with the bare look-ups.
func (r *rig) lookUpAll(n int) {
	ctx, met := r.Context(), 0
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		keys, next, err := r.rdb.Scan(ctx, cursor, "queue:reservation:*", page).Result()
		require.NoError(r, err)
		met += len(keys)
		cursor = next
		for some := range slices.Chunk(keys, batch) {
			r.lookUp(ctx, some)
		}
	}
	require.GreaterOrEqual(r, met, n)
}

func (r *rig) lookUp(ctx context.Context, keys []string) {
	texts, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.Get(ctx, key)
		}
		return nil
	})
	require.NoError(r, err)
	_, err = r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, text := range texts {
			_, id, _ := strings.Cut(text.(*redis.StringCmd).Val(), `"roomId":"`)
			id, _, _ = strings.Cut(id, `"`)
			p.HExists(ctx, "roomcaches", id)
		}
		return nil
	})
	require.NoError(r, err)
}
