package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// gone is how long messages go into the void: from a heartbeat's expiry to the last of its owner's
// entries gone.
func gone(r *rig) {
	n := r.gone
	r.section("From a heartbeat's expiry to the last entry gone")
	r.say("An owner of %s entries falls silent, %d times, at any instant of the leader's second; %d owners live. Default share and intervals.",
		many(n), r.deaths, bystanders)
	took := r.dieOneByOne(n)
	slices.Sort(took)
	mid, most := quantile(took, 0.5), quantile(took, 1)
	r.table([]string{"least", "median", "p95", "most"}, [][]string{{brief(took[0]), brief(mid), brief(quantile(took, 0.95)), brief(most)}})
	r.promise(fmt.Sprintf("%s entries gone after the expiry, median, s", many(n)), "%.2f", mid.Seconds(), 1)
	r.promise(fmt.Sprintf("%s entries gone after the expiry, never later than, s", many(n)), "%.2f", most.Seconds(), 2)
}

// dieOneByOne measures the deaths of owners of n entries.
func (r *rig) dieOneByOne(n int) (took []time.Duration) {
	r.clear()
	r.warm()
	living := owners("live", bystanders)
	r.live(living...)
	r.fill(r.deaths*n, aside, true, living...)
	jan := r.replica("ingest-leader", func(_ *registry.Config, jc *janitor.Config) { jc.RedisShare = 0 }).leads()
	defer jan.stop()

	for i := range r.deaths {
		id := owner("dead", i)
		r.fill(i*n, n, true, id)
		// Seen alive by the leader, it dies anywhere between two of its looks.
		ttl := 1500*time.Millisecond + time.Duration(i)*time.Second/time.Duration(r.deaths)
		expiry := time.Now().Add(ttl)
		record := fmt.Sprintf("%d/90000/38000/1/0/h", expiry.Add(-90*time.Second).UnixMilli())
		require.NoError(r, r.rdb.HSet(r.Context(), r.keys.Beats(), id, record).Err())
		require.NoError(r, r.rdb.Set(r.Context(), r.keys.Heartbeat(id), "0/0", ttl).Err())
		require.NoError(r, r.rdb.SAdd(r.Context(), r.keys.Roster(), id).Err())
		require.NoError(r, r.rdb.Publish(r.Context(), r.keys.News(), "").Err())
		wait.For(r.Context(), time.Until(expiry))
		r.until(func() bool { // O(1) each, every millisecond
			left, err := r.rdb.Exists(r.Context(), r.keys.Devices(id)).Result()
			require.NoError(r, err)
			return left == 0
		})
		took = append(took, time.Since(expiry))
		require.Equal(r, aside, r.entries())
	}
	return took
}
