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

// find is what it costs to find everybody who can take work, and what somebody else notices.
func find(r *rig) {
	r.section("Availability: who can take work")
	r.say("Everybody is online, one in %d is deactivated. The floor is what one writes first: SDIFF of the two sets, then a GET of "+
		"the heartbeat and one of the sessions of each mitra, in pipelines of %d mitras. A neighbour, in a process of its own, does a GET or a SET every %s.", idle, page, neighbourPace)
	r.onBoth((*rig).find)
}

func (r *rig) find() {
	wants := map[int]float64{300: 0.8}
	for _, n := range r.found {
		m := r.seeded(crew(n))
		times := max(1, r.foundIn/n)
		want := n - (n+idle-1)/idle
		require.Equal(r.t, want, r.findAvailable(m)) // the server knows the script then
		results := r.pairs(
			way{name: "SDIFF and 2 GET each", kind: floor, run: func() cost {
				return r.beside(func() cost {
					return r.measure(n*times, func() {
						for range times {
							require.Len(r.t, r.findPlainly(m.client), want)
						}
					})
				})
			}},
			way{name: "FindAvailable", kind: ours, run: func() cost {
				return r.beside(func() cost {
					return r.measure(n*times, func() {
						for range times {
							require.Equal(r.t, want, r.findAvailable(m))
						}
					})
				})
			}},
		)
		r.say("### %s online, %s", many(n), r.server())
		r.costs(results)
		stalls := make([]float64, len(results))
		for i, w := range results {
			stalls[i] = w.medianOf(func(c cost) float64 { return ms(quantile(c.heard, 1)) })
		}
		r.say("A neighbour waited at most %s ms beside the floor, and %s ms beside ours: medians of the rounds' longest.",
			digits(stalls[0]), digits(stalls[1]))
		limit := 1.0
		if l, ok := wants[n]; ok {
			limit = l
		}
		r.promise(fmt.Sprintf("all of %s online: wall, × SDIFF and 2 GET each, %s", many(n), r.server()), "%.2f", results[1].wallRatio, limit)
		if n == 100_000 {
			idle := r.undisturbed()
			r.say("While nobody asked it waited %s ms.", digits(idle))
			r.promise("longest that a neighbour waits beside it, above idle, ms, "+r.server(), "%.1f", stalls[1]-idle, 12)
		}
	}
}

// undisturbed is the longest (ms) that a neighbour waits while nobody else asks.
func (r *rig) undisturbed() float64 {
	var longest []float64
	for range r.rounds {
		c := r.beside(func() cost { return r.measure(1, func() { r.rest(quietly) }) })
		longest = append(longest, ms(quantile(c.heard, 1)))
	}
	return median(longest)
}

func (r *rig) findAvailable(m *mirror) (n int) {
	r.until(func() bool {
		all, err := m.FindAvailable(r.t.Context(), 0)
		n = len(all.Value)
		return err == nil
	})
	return n
}

func (r *rig) findPlainly(rdb *redis.Client) (all []found) {
	ctx := r.t.Context()
	ids, err := rdb.SDiff(ctx, onlineKey, deactivatedKey).Result()
	require.NoError(r.t, err)
	cutoff := time.Now().Add(-2 * time.Minute).UTC().Format(isoMS)
	for some := range slices.Chunk(ids, page) {
		cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, id := range some {
				p.Get(ctx, heartbeatKey+id)
				p.Get(ctx, capacityKey+id)
			}
			return nil
		})
		require.NoError(r.t, err)
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
