package bench

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// found is a mitra who can take work.
type found struct {
	id       string
	sessions int
}

// find is what it costs to find everybody who can take work.
func find(r *rig) {
	r.section("Availability: who can take work")
	r.say("Everybody is online, one in %d is deactivated. The floor is what one writes first: SDIFF of the two sets, then a GET of "+
		"the heartbeat and one of the sessions of each mitra, in pipelines of %d mitras.", idle, page)
	for _, n := range r.found {
		m := r.seeded(crew(n))
		times := max(1, r.found[len(r.found)-1]/n)
		want := n - (n+idle-1)/idle
		require.Equal(r, want, r.findAvailable(m)) // the server knows the script then
		run := func(find func() int) func() cost {
			return func() cost {
				return r.measure(n*times, func() {
					for range times {
						require.Equal(r, want, find())
					}
				})
			}
		}
		results := r.pairs(
			way{name: "SDIFF and 2 GET each", kind: floor, run: run(func() int { return len(r.findPlainly(m.client)) })},
			way{name: "FindAvailable", kind: ours, run: run(func() int { return r.findAvailable(m) })},
		)
		r.say("### %s online", many(n))
		r.costs(results)
		limit := 1.0
		if n == 300 {
			limit = 0.8
		}
		r.promise(fmt.Sprintf("all of %s online: wall, × SDIFF and 2 GET each", many(n)), "%.2f", results[1].wallRatio, limit)
	}
}

func (r *rig) findAvailable(m *mirror) (n int) {
	r.until(func() bool {
		all, err := m.FindAvailable(r.Context(), 0)
		n = len(all.Value)
		return err == nil
	})
	return n
}

func (r *rig) findPlainly(rdb *redis.Client) (all []found) {
	ctx := r.Context()
	ids, err := rdb.SDiff(ctx, onlineKey, deactivatedKey).Result()
	require.NoError(r, err)
	cutoff := time.Now().Add(-2 * time.Minute).UTC().Format(isoMS)
	for some := range slices.Chunk(ids, page) {
		cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, id := range some {
				p.Get(ctx, heartbeatKey+id)
				p.Get(ctx, capacityKey+id)
			}
			return nil
		})
		require.NoError(r, err)
		for i, id := range some {
			at, text := cmds[2*i].(*redis.StringCmd).Val(), cmds[2*i+1].(*redis.StringCmd).Val()
			if n, err := strconv.Atoi(text); err == nil && n < capacity && at >= cutoff {
				all = append(all, found{id, n})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.sessions - b.sessions })
	return all
}
