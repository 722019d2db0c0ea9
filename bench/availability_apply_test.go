package bench

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

// apply is what it costs to bring states to Redis, each if it is newer.
func apply(r *rig) {
	n := r.mitras
	r.section("Availability: states are brought to Redis")
	r.say("%s mitras change at once. The floor writes the same four keys of each, in pipelines of %d mitras, whatever stands there.", many(n), batch)
	r.clear()
	rows := crew(n)
	source := newTable(rows)
	m := r.mirror(source, func(c *availability.Config) { c.Tick = time.Millisecond })
	<-source.asked
	change := func() []availability.State {
		changed := slices.Clone(rows)
		for i := range changed {
			rows[i].Version++
			rows[i].Sessions = (rows[i].Sessions + 1) % capacity
			rows[i].Seen = time.Now()
		}
		copy(changed, rows)
		return changed
	}
	results := r.pairs(
		way{name: "SADD, SREM and 2 SET each", kind: floor, run: func() cost {
			states := change()
			return r.measure(n, func() { r.rewrite(m.client, states) })
		}},
		way{name: "apply", kind: ours, run: func() cost {
			states := change()
			return r.measure(n, func() {
				source.fed <- states
				<-source.asked // all of it has arrived
			})
		}},
	)
	m.stop()
	for i, s := range rows {
		if i%97 == 0 {
			got, err := r.rdb.Get(r.t.Context(), capacityKey+s.ID).Int()
			require.NoError(r.t, err)
			require.Equal(r.t, s.Sessions, got)
		}
	}
	r.costs(results)
}

func (r *rig) rewrite(rdb *redis.Client, states []availability.State) {
	ctx := r.t.Context()
	for some := range slices.Chunk(states, batch) {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, s := range some {
				p.SAdd(ctx, onlineKey, s.ID)
				if s.Active {
					p.SRem(ctx, deactivatedKey, s.ID)
				} else {
					p.SAdd(ctx, deactivatedKey, s.ID)
				}
				p.Set(ctx, capacityKey+s.ID, s.Sessions, 0)
				p.Set(ctx, heartbeatKey+s.ID, s.Seen.UTC().Format(isoMS), 0)
			}
			return nil
		})
		require.NoError(r.t, err)
	}
}
