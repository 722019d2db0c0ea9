package bench

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const benchKey = "bench:key"

// seenTiming is what the replica keeps to whose calls are repeated.
var seenTiming = guard.Timing{Interval: 2 * time.Second, TTL: 6 * time.Second}

// caller makes the calls whose prices are measured. Those of an owner it makes as a replica was
// seen to make them, with other devices.
type caller struct {
	*rig
	readings []reading
	floors   []float64        // µs, all that were measured
	seen     map[string][]any // by script: its EVALSHA
	instance string           // that was seen
	renewal  string           // SHA1 of a script like that of a lease
	guard    *guard.Guard
	lease    guard.Lease
	asked    uint64 // batches
	other    *redistest.Server
}

func (r *rig) newCaller() *caller {
	ctx := r.Context()
	c := &caller{rig: r}
	c.watch()
	r.warmFor(seenTiming.Interval)
	require.NoError(r, r.rdb.Set(ctx, benchKey, "value", 0).Err())
	var err error
	c.renewal, err = r.rdb.ScriptLoad(ctx,
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end`).Result()
	require.NoError(r, err)
	c.lease = guard.Lease{Token: "bench/token", Epoch: uint64(time.Now().Add(time.Hour).UnixMicro())}
	require.NoError(r, r.rdb.Set(ctx, r.keys.Lease(), c.lease.Token, 0).Err())
	c.guard = guard.New(r.rdb, r.rdb, r.keys, seenTiming, owner("live", 0))
	verdict, _, err := c.guard.Open(ctx, c.lease)
	require.NoError(r, err)
	require.Equal(r, guard.Done, verdict)
	sub := r.rdb.Subscribe(ctx, benchKey)
	r.Cleanup(func() { _ = sub.Close() })
	go func() {
		for range sub.Channel() {
		}
	}()
	r.until(func() bool { return r.rdb.PubSubNumSub(ctx, benchKey).Val()[benchKey] == 1 })
	c.other = redistest.Start(r)
	return c
}

// lastHeader is the name of a script: the last part of it says so.
var lastHeader = regexp.MustCompile(`(?s).*\n-- (\w+)\.lua: `)

// watch runs a replica that makes each of its calls once, and remembers them.
func (c *caller) watch() {
	ctx := c.Context()
	require.NoError(c, c.rdb.ScriptFlush(ctx).Err()) // so that each script is sent once in full
	var mu sync.Mutex
	seen := map[string][]any{}
	listen := redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send() // before it is heard: the server has the script then
		evalsha := map[string]string{"eval": "evalsha", "eval_ro": "evalsha_ro"}[cmds[0].Name()]
		if args := cmds[0].Args(); err == nil && evalsha != "" {
			if name := lastHeader.FindStringSubmatch("\n" + args[1].(string)); name != nil {
				sum := sha1.Sum([]byte(args[1].(string)))
				mu.Lock()
				seen[name[1]] = append([]any{evalsha, hex.EncodeToString(sum[:])}, args[2:]...)
				mu.Unlock()
			}
		}
		return err
	})
	heard := func(script string) bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[script] != nil
	}
	p := c.replica(madeUp, func(rc *registry.Config, _ *janitor.Config) {
		rc.HeartbeatInterval, rc.HeartbeatTTL = seenTiming.Interval, seenTiming.TTL
		rc.Client.AddHook(listen)
		rc.Control.AddHook(listen)
	})
	c.instance = p.reg.Instance()
	device := imei(c.priced)
	claim := p.reg.Register(device, nobody)
	require.NoError(c, claim.Wait(ctx))
	_, err := p.reg.Lookup(ctx, device)
	require.NoError(c, err)
	require.NoError(c, c.rdb.HDel(ctx, c.keys.Registry(), device).Err())
	require.NoError(c, c.rdb.Del(ctx, c.keys.Heartbeat(c.instance)).Err())
	c.until(func() bool { return heard("beat") && heard("heal") })
	claim.Release()
	c.until(func() bool { return heard("release") })
	p.stop()
	c.seen = seen
}

// again repeats the call of an owner's script; devices, if given, in place of those that were seen.
func (c *caller) again(p redis.Pipeliner, script string, devices ...any) {
	call := c.seen[script]
	if len(devices) > 0 {
		const owners = 8 // ARGV that all scripts of an owner share
		keys, err := strconv.Atoi(fmt.Sprint(call[2]))
		require.NoError(c, err)
		call = append(call[:3+keys+owners:3+keys+owners], devices...)
	}
	p.Do(c.Context(), call...)
}

// lookUp asks for a device that is registered.
func (c *caller) lookUp(p redis.Pipeliner) {
	call := append([]any{}, c.seen["lookup"]...)
	for i, arg := range call {
		if arg == imei(c.priced) {
			call[i] = c.known(1)[0]
		}
	}
	p.Do(c.Context(), call...)
}

// known are k devices that are registered, anywhere in the registry.
func (c *caller) known(k int) []string {
	all := make([]string, k)
	for i := range all {
		all[i] = imei(rand.IntN(c.priced))
	}
	return all
}

// record stores a record of telemetry like the gateway's.
func (c *caller) record(p redis.Pipeliner, i int) {
	p.Do(c.Context(), "xadd", "bench:telemetry", "maxlen", "~", 100_000, "*", "imei", imei(i),
		"instance", owner("live", 0), "codec", "8E", "ts", 1_700_000_000_000+i, "priority", 0, "lat", "54.6871550", "lng", "25.2796510",
		"altitude", 112, "angle", 214, "satellites", 11, "speed", 54, "event", 0, "io", `{"1":0,"21":4,"66":12543,"239":1,"240":1}`)
}

// evict has a batch of a dead owner's devices evicted under the guard, as the quick way does it:
// the index is left for the end.
func (c *caller) evict(dead string, devices []any) error {
	items := make([]string, len(devices))
	for i, device := range devices {
		items[i] = device.(string)
	}
	c.asked++
	answer, err := c.guard.Do(c.Context(), guard.Batch{
		ID: guard.BatchID{Epoch: c.lease.Epoch, N: c.asked}, Token: c.lease.Token, Sweep: "bench", Owner: dead,
		Body: guard.EvictEntries, Keys: guard.EntryKeys(c.keys, dead)[:1], Items: items,
		Evidence: guard.Evidence{Record: longDead, ReadAt: time.Now().UnixMilli()},
	})
	require.Equal(c, len(items), answer.Deleted, "%+v", answer)
	return err
}

// floor measures a GET in a pipeline, in µs of Redis CPU.
func (c *caller) floor() float64 {
	us := c.pipelined(0, 20*c.repeats, func(p redis.Pipeliner, _ int) { p.Get(c.Context(), benchKey) })
	c.floors = append(c.floors, us)
	return us
}

// pipelined measures n calls in pipelines of a hundred, or of fewer where they carry many items.
func (c *caller) pipelined(items, n int, do func(p redis.Pipeliner, i int)) (us float64) {
	most := max(4, 100/(1+items/10))
	return c.us(n, func() {
		for from := 0; from < n; from += most {
			pipe := c.rdb.Pipeline()
			for i := from; i < min(n, from+most); i++ {
				do(pipe, i)
			}
			c.exec(pipe)
		}
	})
}

// us measures what each of n calls takes, in µs of Redis CPU.
func (c *caller) us(n int, work func()) float64 {
	return max(1e-3, c.measure(n, work).cpu.Seconds()*1e6/float64(n))
}

// piped prices calls that are sent in pipelines.
func (c *caller) piped(name string, items, n int, do func(p redis.Pipeliner, i int)) {
	floor := c.floor()
	c.readings = append(c.readings, reading{name, items, c.pipelined(items, n, do) / floor, false})
}

// alone prices calls that are sent one after the other.
func (c *caller) alone(name string, items, n int, do func(i int) error) {
	floor := c.floor()
	us := c.us(n, func() {
		for i := range n {
			require.NoError(c, do(i))
		}
	})
	c.readings = append(c.readings, reading{name, items, us / floor, true})
}
