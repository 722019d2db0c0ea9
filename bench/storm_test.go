package bench

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// storm is everybody coming at once, as after a replica's death, and then one device coming alone.
func storm(r *rig) {
	n := r.storm
	r.section("Registration storm")
	r.say("%s devices register at one replica at once; and below, one alone.", many(n))
	const id = "ingest-live-7d9f8b6c5-00000"
	results := r.pairs(
		way{name: "MULTI of heartbeat, HSET 500, SADD 500", kind: floor, run: func() cost {
			r.clear()
			r.warm()
			c := r.measure(n, func() {
				for i := 0; i < n; i += batch {
					r.bareRegister(id, i, min(batch, n-i))
				}
			})
			require.Equal(r, n, r.entries())
			return c
		}},
		way{name: "Register, Wait", kind: ours, run: func() cost { return r.registerAll(id, n) }},
	)
	r.costs(results)
	r.promise(fmt.Sprintf("storm of %s: Redis CPU, × MULTI of 500", many(n)), "%.2f", results[1].cpuRatio, 1.5)

	r.clear()
	p := r.replica(id, nil)
	defer p.stop()
	var took []time.Duration
	for i := range min(n, 1000) {
		begun := time.Now()
		require.NoError(r, p.reg.Register(imei(n+i), nobody).Wait(r.Context()))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	r.table([]string{"one registration when quiet: p50", "p99", "max"}, [][]string{
		{brief(quantile(took, 0.5)), brief(quantile(took, 0.99)), brief(quantile(took, 1))},
	})
}

// registerAll is ours: n devices register at one replica at once.
func (r *rig) registerAll(id string, n int) cost {
	r.clear()
	r.warm()
	p := r.replica(id, nil)
	defer p.stop()
	cost := r.measure(n, func() {
		claims := make([]*registry.Claim, n)
		for i := range claims {
			claims[i] = p.reg.Register(imei(i), nobody)
		}
		for _, c := range claims {
			require.NoError(r, c.Wait(r.Context()))
		}
	})
	require.Equal(r, n, r.entries())
	return cost
}

// bareRegister is the least that keeps an entry from standing without its owner's heartbeat.
func (r *rig) bareRegister(id string, first, n int) {
	ctx := r.Context()
	pairs, members := make([]string, 0, 2*n), make([]string, 0, n)
	for i := first; i < first+n; i++ {
		members = append(members, imei(i))
		pairs = append(pairs, imei(i), id)
	}
	_, err := r.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, r.keys.Heartbeat(id), strconv.FormatInt(time.Now().UnixMilli(), 10), 90*time.Second)
		pipe.HSet(ctx, r.keys.Registry(), pairs)
		pipe.SAdd(ctx, r.keys.Devices(id), members)
		return nil
	})
	if err != nil {
		r.Error(err)
	}
}
