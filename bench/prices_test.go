package bench

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// reading is what one call for so many items cost in one round.
type reading struct {
	name   string
	items  int
	floors float64 // by the floor that was measured just before
	alone  bool    // sent by itself: its round trip is in it
}

// trip is a call that is sent by itself, and does next to nothing.
const trip = "round trip"

// prices is what each call of ours costs Redis, of which the page about fleets' sizes reckons.
func prices(r *rig) {
	r.section("Prices: what each call costs")
	r.say("On a server with %s entries of %d owners. A price is Redis CPU in floors: the floor is a GET in a pipeline, measured before each of the others. "+
		"Medians of %d rounds. Each call or pipeline costs a round trip besides.", many(r.priced), bystanders, r.rounds)
	r.clear()
	bytes := r.bytesOf()
	c := r.newCaller()
	rounds := make([][]reading, r.rounds)
	for i := range rounds {
		rounds[i] = c.round()
	}
	floor, tripped := median(c.floors), 0.0
	var rows [][]string
	for i, one := range rounds[0] {
		var all []float64 // round by round, without the round trip
		for _, round := range rounds {
			floors := round[i].floors
			switch {
			case one.name == trip:
				floors-- // the GET itself
			case one.alone:
				floors -= tripped
			}
			all = append(all, max(0, floors))
		}
		if one.name == trip {
			tripped = median(all)
		}
		rows = append(rows, []string{
			one.name, fmt.Sprint(one.items), digits(median(all)),
			digits(slices.Min(all)) + "–" + digits(slices.Max(all)), digits(median(all) * floor),
		})
	}
	r.table([]string{"call", "items", "price, floors", "range", "µs here"}, rows)
	r.table([]string{"memory", "bytes"}, bytes)
}

// bytesOf measures what keys take, and leaves the registry filled.
func (r *rig) bytesOf() (rows [][]string) {
	n := r.priced
	grown := func(n int, work func()) float64 {
		before := number(r.info("memory")["used_memory"])
		work()
		return (number(r.info("memory")["used_memory"]) - before) / float64(n)
	}
	index := func(kind string, sets, members int) float64 {
		return grown(sets, func() {
			pipe := r.rdb.Pipeline()
			for i := range sets {
				for j := 0; j < members; j += batch {
					pipe.SAdd(r.Context(), r.keys.Devices(owner(kind, i)), imeis(i*members+j, min(batch, members-j)))
				}
			}
			r.exec(pipe)
		})
	}
	row := func(what string, bytes float64) { rows = append(rows, []string{what, digits(bytes)}) }
	row("heartbeat, record, place on the roster", grown(n/10, func() {
		pipe := r.rdb.Pipeline()
		for _, id := range owners("beat", n/10) {
			pipe.Set(r.Context(), r.keys.Heartbeat(id), "1700000000000/"+strings.Repeat("7", 26), time.Hour)
			pipe.SAdd(r.Context(), r.keys.Roster(), id)
			pipe.HSet(r.Context(), r.keys.Beats(), id, "1700000000000/90000/38000/1700000000000/0/h")
		}
		r.exec(pipe)
	}))
	one := index("one", n/100, 1)
	row("index of an owner", one)
	row("entry in an index of at most 512", (index("few", n/100, 100)-one)/99)
	row("entry in a larger index", index("all", 1, n)/float64(n))
	r.clear()
	row("entry of the registry", grown(n, func() { r.fill(0, n, false, owners("live", bystanders)...) }))
	r.live(owners("live", bystanders)...)
	return rows
}

func (r *rig) exec(pipe redis.Pipeliner) {
	_, err := pipe.Exec(r.Context())
	require.NoError(r, err)
}

// imeis are n devices from one on.
func imeis(first, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = imei(first + i)
	}
	return all
}

// round measures each call once, the round trip first.
func (c *caller) round() []reading {
	ctx, n := c.Context(), c.repeats
	c.readings = nil
	c.alone(trip, 0, n, func(int) error { return c.rdb.Get(ctx, benchKey).Err() })
	c.piped("renewal", 0, n, func(p redis.Pipeliner, _ int) { p.EvalSha(ctx, c.renewal, []string{benchKey}, "value", 3_600_000) })
	c.piped("beat", 0, n, func(p redis.Pipeliner, _ int) { c.again(p, "beat") })
	c.alone("tick", 0, n, func(int) error { _, err := c.guard.Tick(ctx); return err })
	c.piped("look-up", 0, n, func(p redis.Pipeliner, _ int) { c.lookUp(p) })
	c.alone("PUBLISH", 0, n, func(i int) error { return c.rdb.Publish(ctx, benchKey, imei(i)).Err() })

	var cursor uint64
	c.alone("HSCAN", page, n/10, func(int) (err error) {
		_, cursor, err = c.rdb.HScan(ctx, c.keys.Registry(), cursor, "", page).Result()
		return err
	})
	require.NoError(c, c.rdb.SAdd(ctx, c.keys.Devices("some"), imeis(0, min(50_000, c.priced))...).Err())
	cursor = 0
	c.alone("SSCAN", page, n/10, func(int) (err error) {
		_, cursor, err = c.rdb.SScan(ctx, c.keys.Devices("some"), cursor, "", page).Result()
		return err
	})
	require.NoError(c, c.rdb.Del(ctx, c.keys.Devices("some")).Err())
	c.piped("XADD of telemetry", 0, n, func(p redis.Pipeliner, i int) { c.record(p, i) })
	for _, k := range []int{1, batch} {
		c.batches(k, max(4, 4*n/(k+8)))
	}
	c.peers(n)
	c.move(c.priced / 10)
	// To a server that has nothing else to do, and finds its caches cold.
	c.alone("beat, one each 2 ms", 0, n/10, func(int) error {
		wait.For(ctx, 2*time.Millisecond)
		return c.rdb.Do(ctx, c.seen["beat"]...).Err()
	})
	return c.readings
}

// batches measures what carries k devices, so many times. Entries that are registered are lost, put
// back, released, and given to an owner that dies.
func (c *caller) batches(k, times int) {
	ctx, first := c.Context(), c.priced
	devices := func(i int) []any { return imeis(first+i*k, k) }
	c.piped("HMGET of entries", k, times, func(p redis.Pipeliner, _ int) { p.HMGet(ctx, c.keys.Registry(), c.known(k)...) })
	c.piped("register", k, times, func(p redis.Pipeliner, i int) { c.again(p, "register", devices(i)...) })
	pipe := c.rdb.Pipeline()
	for i := range times {
		pipe.Do(ctx, append([]any{"hdel", c.keys.Registry()}, devices(i)...)...)
	}
	pipe.Del(ctx, c.keys.Devices(c.instance))
	c.exec(pipe)
	c.piped("heal", k, times, func(p redis.Pipeliner, i int) { c.again(p, "heal", devices(i)...) })
	require.Equal(c, c.priced+k*times, c.entries(), "healed")
	c.piped("release", k, times, func(p redis.Pipeliner, i int) { c.again(p, "release", devices(i)...) })
	require.Equal(c, c.priced, c.entries(), "released")

	const dead = "ingest-dead-7d9f8b6c5-00000"
	c.fill(first, k*times, true, dead)
	require.NoError(c, c.rdb.HSet(ctx, c.keys.Beats(), dead, longDead).Err())
	c.warmFor(seenTiming.Interval)
	c.alone("evict", k, times, func(i int) error { return c.evict(dead, devices(i)) })
	require.Equal(c, c.priced, c.entries(), "evicted")
}

// peers measures what others do for each device in every period.
func (c *caller) peers(n int) {
	ctx, key := c.Context(), func(i int) string { return "device:" + imei(i) }
	c.piped("SET EX of a device's key", 0, n, func(p redis.Pipeliner, i int) { p.Set(ctx, key(i), owner("live", 0), time.Hour) })
	c.piped("PEXPIRE of a device's key", 0, n, func(p redis.Pipeliner, i int) { p.PExpire(ctx, key(i), time.Hour) })
	pipe := c.rdb.Pipeline()
	for i := range n {
		pipe.Del(ctx, key(i))
	}
	c.exec(pipe)
}

// move measures for how long a server stands still while a registry of n entries leaves it.
func (c *caller) move(n int) {
	ctx, moved := c.Context(), c.keys
	moved.Prefix = "moved:"
	elsewhere := *c.rig
	elsewhere.keys = moved
	elsewhere.fill(0, n, false, owners("live", bystanders)...)
	floor := c.floor()
	target := rig{T: c.T, rdb: c.other.Client()}
	host, port, err := net.SplitHostPort(c.other.Addr())
	require.NoError(c, err)
	before := target.usage().cpu
	us := 1e6 * c.measure(n, func() {
		require.NoError(c, c.rdb.Migrate(ctx, host, port, moved.Registry(), 0, time.Minute).Err())
	}).cpu.Seconds()
	// Nobody else is served meanwhile: the source works, then it waits until the target has.
	us += 1e6 * (target.usage().cpu - before).Seconds()
	c.readings = append(c.readings, reading{"move to a node", n, us / floor, false})
	require.NoError(c, target.rdb.FlushAll(ctx).Err())
}
