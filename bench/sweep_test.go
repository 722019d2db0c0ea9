package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// aside is how many entries of the living stand beside those that are swept.
	aside = 20_000
	// enough entries are swept at a time for what Redis does besides not to count: small owners die
	// several together, and fewer than live.
	enough = 50_000
)

// sweep is the cleaning up behind a dead owner.
func sweep(r *rig) {
	r.section("Sweep: one dead owner")
	r.say("%s entries belong to %d living owners. Small owners are measured several at once. The floor is the smallest script that "+
		"compares, records and deletes: HMGET, XADD, HDEL and SREM of a batch, whose items an SSCAN finds. Ours runs at a full share "+
		"of Redis, unlinks the index as a whole instead of SREM, and its wall time is that of the pass.",
		many(min(aside, r.sweeps[len(r.sweeps)-1])), bystanders)
	for _, n := range r.sweeps {
		k := max(1, min(enough, r.sweeps[len(r.sweeps)-1])/n)
		m := &mass{rig: r, ids: owners("dead", k), total: n * k, beside: min(aside, r.sweeps[len(r.sweeps)-1])}
		results := r.often(n,
			way{name: "SSCAN + a script by 500", kind: floor, run: m.smallest},
			way{name: "janitor, by its index", kind: ours, run: func() cost { return m.janitor(1) }},
			way{name: "HGETALL, HGET + HDEL by 500", kind: peer, run: m.naive},
		)
		r.say("### %s entries", many(n))
		r.costs(results)
		r.promiseSweep(n, results[0], results[1])
	}
}

// promiseSweep compares a sweep with the smallest script. The fixed cost of an owner (its verdict,
// its batches that are not yet full, the end of its index) dominates the ratio of a small one, so
// the target is that cost.
func (r *rig) promiseSweep(n int, smallest, janitor result) {
	if n >= 10_000 {
		r.promise(fmt.Sprintf("sweep of %s: Redis CPU, × the smallest script", many(n)), "%.2f", janitor.cpuRatio, 1.15)
		return
	}
	var extra []float64
	for i, c := range janitor.costs {
		extra = append(extra, ms(c.cpu-smallest.costs[i].cpu)*float64(n)/float64(c.n))
	}
	r.promise(fmt.Sprintf("sweep of %s: Redis CPU of an owner above the smallest script, ms", many(n)), "%.2f", median(extra), 1)
}

// mass is some dead owners of the same size.
type mass struct {
	*rig
	ids    []string
	total  int // entries of all
	beside int
}

// prepare writes everything anew. The owners live, and are not on the roster yet.
func (m *mass) prepare(indexed bool) {
	m.clear()
	m.warm()
	m.live(owners("live", bystanders)...)
	m.fill(m.total, m.beside, indexed, owners("live", bystanders)...)
	m.fill(0, m.total, indexed, m.ids...)
	pipe := m.rdb.Pipeline()
	for _, id := range m.ids {
		pipe.Set(m.Context(), m.keys.Heartbeat(id), "0/0", time.Hour)
	}
	_, err := pipe.Exec(m.Context())
	require.NoError(m, err)
}

// swept checks that the work was done, and nothing else.
func (m *mass) swept() { require.Equal(m, m.beside, m.entries()) }

// smallestScript compares a batch of a dead owner's entries, records it and deletes it: no verdict,
// no witness, no fence.
// KEYS[1] registry  KEYS[2] log  KEYS[3] index  ARGV[1] owner  ARGV[2..] IMEIs
var smallestScript = redis.NewScript(`
local args, owner = ARGV, ARGV[1]
local found = redis.call('HMGET', KEYS[1], unpack(args, 2))
local dead, n = {}, 0
for i = 1, #found do
  if found[i] == owner then
    n = n + 1
    dead[n] = args[i + 1]
  end
end
if n == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', 'owner', ARGV[1], 'imeis', table.concat(dead, ' '))
redis.call('HDEL', KEYS[1], unpack(dead))
redis.call('SREM', KEYS[3], unpack(dead))
return n`)

// smallest is the floor: what it deletes is compared and recorded, and nothing else.
func (m *mass) smallest() cost {
	ctx := m.Context()
	require.NoError(m, smallestScript.Load(ctx, m.rdb).Err())
	m.prepare(true)
	m.die(m.ids...)
	defer m.swept()
	return m.measure(m.total, func() {
		for _, id := range m.ids {
			keys := []string{m.keys.Registry(), m.keys.Log(), m.keys.Devices(id)}
			held := []any{id}
			remove := func() {
				require.NoError(m, smallestScript.EvalSha(ctx, m.rdb, keys, held...).Err())
				held = held[:1]
			}
			members := m.rdb.SScan(ctx, m.keys.Devices(id), 0, "", page).Iterator()
			for members.Next(ctx) {
				if held = append(held, members.Val()); len(held) > batch {
					remove()
				}
			}
			require.NoError(m, members.Err())
			if len(held) > 1 {
				remove()
			}
		}
	})
}

// janitor is ours, at a share of Redis' time (0: the default): the owners fall silent, the next
// look at the roster finds them.
func (m *mass) janitor(share float64) cost {
	m.prepare(true)
	jan := m.replica("ingest-leader", func(_ *registry.Config, jc *janitor.Config) { jc.RedisShare = share }).leads()
	defer jan.stop()
	defer m.swept()
	return m.dying(jan)
}

// dying measures from the death to the end of the pass that sweeps. The wall time is the passes'
// own.
func (m *mass) dying(jan *replica) cost {
	var took time.Duration
	c := m.measure(m.total, func() {
		m.die(m.ids...)
		reported, seen := 0, time.Now()
		m.until(func() bool {
			all := jan.jan.Status().Evicted >= uint64(m.total)
			report := jan.last("owners")
			if report.Evicted > 0 && report.Started.After(seen) {
				if seen = report.Started; reported == 0 {
					m.from = seen
				}
				reported += report.Evicted
				took += time.Duration(report.Seconds * float64(time.Second))
			}
			// A pass that found nothing any more: on a busy machine its report may hide the one before.
			return reported >= m.total || all && report.Evicted == 0 && report.Started.After(seen)
		})
		if reported < m.total {
			took = 0
		}
	})
	if took > 0 {
		c.wall = took
	}
	return c
}

// naive is what one would write first: read everything, ask for each owner, look again and delete.
func (m *mass) naive() cost {
	m.prepare(false)
	m.die(m.ids...)
	defer m.swept()
	ctx := m.Context()
	return m.measure(m.total, func() {
		all, err := m.rdb.HGetAll(ctx, m.keys.Registry()).Result()
		require.NoError(m, err)
		lives := map[string]bool{}
		var dead []string
		for imei, id := range all {
			if _, known := lives[id]; !known {
				n, err := m.rdb.Exists(ctx, m.keys.Heartbeat(id)).Result()
				require.NoError(m, err)
				lives[id] = n == 1
			}
			if !lives[id] {
				dead = append(dead, imei)
			}
		}
		for some := range slices.Chunk(dead, batch) {
			asked, err := m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, imei := range some {
					p.HGet(ctx, m.keys.Registry(), imei)
				}
				return nil
			})
			require.NoError(m, err)
			_, err = m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, imei := range some {
					if !lives[asked[i].(*redis.StringCmd).Val()] {
						p.HDel(ctx, m.keys.Registry(), imei)
					}
				}
				return nil
			})
			require.NoError(m, err)
		}
	})
}
