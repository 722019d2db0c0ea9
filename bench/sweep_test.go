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
		"compares, records and deletes: HMGET, XADD, HDEL and SREM of a batch, whose items an SSCAN finds. The peer above it neither "+
		"compares nor records. Ours runs at a full share of Redis, unlinks the index as a whole instead of SREM, and its wall time is "+
		"that of the pass.", many(min(aside, r.sweeps[len(r.sweeps)-1])), bystanders)
	var p99s, longest []float64
	for _, n := range r.sweeps {
		m := newMass(r, n)
		ways := []way{
			{name: "SSCAN + a script by 500", kind: floor, run: m.smallest},
			{name: "SSCAN + HDEL by 500", kind: peer, run: m.bare},
			{name: "janitor, by its index", kind: ours, run: m.janitor},
			{name: "janitor, no index: a full scan", kind: ours, rounds: 3, run: m.withoutIndex},
			{name: "HGETALL, HGET + HDEL by 500", kind: peer, rounds: 3, run: func() cost { return m.naive(batch) }},
		}
		if n <= r.oneByOne {
			ways = append(ways, way{name: "HGETALL, HGET + HDEL one by one", kind: peer, rounds: 1, run: func() cost { return m.naive(1) }})
		}
		results := r.often(n, ways...)
		r.say("### %s entries", many(n))
		r.costs(results)
		janitor := results[2]
		r.promiseSweep(n, results[0], janitor)
		p99s = append(p99s, janitor.leastOf(func(c cost) float64 { return ms(c.p99) }))
		longest = append(longest, janitor.leastOf(func(c cost) float64 { return ms(c.longest) }))
	}
	r.promise("p99 of the calls of a sweep in its quietest round, any size, ms", "%.2f", slices.Max(p99s), 1)
	r.promise("longest single call of a sweep in its quietest round, any size, ms", "%.2f", slices.Max(longest), 2)
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
	n      int // entries of each
	ids    []string
	total  int
	beside int
}

func newMass(r *rig, n int) *mass {
	k := max(1, min(enough, r.sweeps[len(r.sweeps)-1])/n)
	return &mass{rig: r, n: n, ids: owners("dead", k), total: n * k, beside: min(aside, r.sweeps[len(r.sweeps)-1])}
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
		pipe.Set(m.t.Context(), m.keys.Heartbeat(id), "0/0", time.Hour)
	}
	_, err := pipe.Exec(m.t.Context())
	require.NoError(m.t, err)
}

// swept checks that the work was done, and nothing else.
func (m *mass) swept() { require.Equal(m.t, m.beside, m.entries()) }

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
	ctx := m.t.Context()
	require.NoError(m.t, smallestScript.Load(ctx, m.rdb).Err())
	return m.unguarded(func(id string, imeis []string) error {
		keys := []string{m.keys.Registry(), m.keys.Log(), m.keys.Devices(id)}
		args := make([]any, 0, 1+len(imeis))
		args = append(args, id)
		for _, one := range imeis {
			args = append(args, one)
		}
		return smallestScript.EvalSha(ctx, m.rdb, keys, args...).Err()
	})
}

// bare deletes without comparing or recording anything.
func (m *mass) bare() cost {
	return m.unguarded(func(_ string, imeis []string) error {
		return m.rdb.HDel(m.t.Context(), m.keys.Registry(), imeis...).Err()
	})
}

// unguarded reads the owners' indexes and hands over what they hold, batch by batch.
func (m *mass) unguarded(remove func(id string, imeis []string) error) cost {
	m.prepare(true)
	m.die(m.ids...)
	defer m.swept()
	return m.measure(m.total, func() {
		for _, id := range m.ids {
			var held []string
			for cursor := uint64(0); ; {
				imeis, next, err := m.rdb.SScan(m.t.Context(), m.keys.Devices(id), cursor, "", page).Result()
				require.NoError(m.t, err)
				held = append(held, imeis...)
				cursor = next
				for len(held) >= batch || (cursor == 0 && len(held) > 0) {
					k := min(batch, len(held))
					require.NoError(m.t, remove(id, held[:k]))
					held = held[k:]
				}
				if cursor == 0 {
					break
				}
			}
		}
	})
}

// janitor is ours: the owners fall silent, the next look at the roster finds them.
func (m *mass) janitor() cost {
	m.prepare(true)
	jan := m.replica("ingest-leader", nil).leads()
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

// withoutIndex is a full scan that finds what nothing else remembers.
func (m *mass) withoutIndex() cost {
	m.prepare(false)
	jan := m.replica("ingest-leader", func(rc *registry.Config, _ *janitor.Config) { rc.NoReverseIndex = true }).leads()
	defer jan.stop()
	defer m.swept()
	pipe := m.rdb.Pipeline()
	// Older ones are deleted, as those of owners on no roster.
	record := fmt.Sprintf("%d/90000/38000/1/0/h", time.Now().Add(-4*time.Minute).UnixMilli())
	for _, id := range m.ids {
		pipe.Del(m.t.Context(), m.keys.Heartbeat(id))
		pipe.HSet(m.t.Context(), m.keys.Beats(), id, record)
	}
	pipe.Publish(m.t.Context(), m.keys.News(), "")
	m.exec(pipe)
	time.Sleep(1100 * time.Millisecond) // a reading of who lives is valid for a second
	return m.measure(m.total, func() { require.Equal(m.t, m.total, jan.pass().Evicted) })
}

// naive is what one would write first: read everything, ask for each owner, look again and delete,
// by so many at a time.
func (m *mass) naive(at int) cost {
	m.prepare(false)
	m.die(m.ids...)
	defer m.swept()
	ctx := m.t.Context()
	return m.measure(m.total, func() {
		all, err := m.rdb.HGetAll(ctx, m.keys.Registry()).Result()
		require.NoError(m.t, err)
		lives := map[string]bool{}
		var dead []string
		for imei, id := range all {
			alive, known := lives[id]
			if !known {
				n, err := m.rdb.Exists(ctx, m.keys.Heartbeat(id)).Result()
				require.NoError(m.t, err)
				alive = n == 1
				lives[id] = alive
			}
			if !alive {
				dead = append(dead, imei)
			}
		}
		for len(dead) > 0 {
			k := min(at, len(dead))
			pipe := m.rdb.Pipeline()
			asked := make([]*redis.StringCmd, k)
			for i, imei := range dead[:k] {
				asked[i] = pipe.HGet(ctx, m.keys.Registry(), imei)
			}
			_, err := pipe.Exec(ctx)
			require.NoError(m.t, err)
			pipe = m.rdb.Pipeline()
			for i, imei := range dead[:k] {
				if !lives[asked[i].Val()] {
					pipe.HDel(ctx, m.keys.Registry(), imei)
				}
			}
			_, err = pipe.Exec(ctx)
			require.NoError(m.t, err)
			dead = dead[k:]
		}
	})
}
