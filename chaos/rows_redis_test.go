package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// The faults of these rows are Redis' own: it stands still, is slow, is down, forgets, is full,
// evicts, refuses, or its clock jumps. They are met by the whole fleet at once.
var redisRows = slices.Concat(stallRows, restartRows, lossRows, memoryRows, refusalRows)

// silent are the devices that traffic leaves alone: where they are is certain while things break.
func (w *environment) silent() map[string]string {
	live := w.Fleet.Live()
	silent := make(map[string]string)
	for i := 0; i < w.Fleet.Len(); i += 2 {
		if id := live[w.Fleet.IMEI(i)]; id != "" {
			silent[w.Fleet.IMEI(i)] = id
		}
	}
	return silent
}

// routable tells whether a look-up would find each of these devices where it is, at an instance
// that lives.
func (w *environment) routable(where map[string]string) bool {
	imeis := slices.Collect(maps.Keys(where))
	got, err := w.HMGet(w.Context(), w.Registry(), imeis...).Result()
	if err != nil {
		return false
	}
	for i, imei := range imeis {
		if got[i] != where[imei] {
			return false
		}
	}
	return w.beating()
}

// beating tells whether every running replica has a heartbeat.
func (w *environment) beating() bool {
	var keys []string
	for _, r := range w.Replicas() {
		keys = append(keys, w.Heartbeat(r.ID))
	}
	return w.Exists(w.Context(), keys...).Val() == int64(len(keys))
}

// heals waits until every silent device is routable again, and asserts that this is one heartbeat
// interval after since (L2).
func (w *environment) heals(since time.Time) {
	w.Helper()
	silent := w.silent()
	harness.Eventually(w, "every silent device is routable again", func() bool { return w.routable(silent) })
	w.within("all routable again", time.Since(since), harness.Interval)
}

// nothingWent is what the right column means by 0 deletes.
func nothingWent(w *environment, v *judge.Verdict) {
	w.Helper()
	require.Zero(w, v.Evicted(""), "somebody who lives was evicted")
}

// raised waits until the witness has started anew for a reason.
func (w *environment) raised(reason string) {
	w.Helper()
	harness.Eventually(w, "the witness holds: "+reason, func() bool {
		return w.HGet(w.Context(), w.Witness(), "reason").Val() == reason
	})
}

// config sets something on the server.
func (w *environment) config(name, value string) {
	w.Helper()
	require.NoError(w, w.ConfigSet(w.Context(), name, value).Err())
}

// another is a client of somebody else, who waits as long as it takes and asks for everything once.
func (w *environment) another() *redis.Client {
	o := w.Server.Options()
	o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = harness.Patience, -1, true
	c := redis.NewClient(o)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// restartRows: Redis is killed and comes back with all that it had, with what it had a while ago,
// with nothing.
var restartRows = []row{
	{22, "RedisRestartedWithAOF", true, 60, nil, under(&serverDown{}, nothingWent)},
	{22, "RedisRestartedWithRDB", false, 60, nil, under(&serverDown{forgets: true, saves: true}, nothingWent)},
	{22, "RedisRestartedEmpty", false, 60, nil, under(&serverDown{forgets: true}, nothingWent)},
}

// serverDown kills the server and starts it again, twice: down for shorter and for longer than the
// TTL.
type serverDown struct {
	calm
	forgets bool // there is no append-only file
	saves   bool // there are snapshots
}

func (f *serverDown) setup(w *environment) {
	if f.forgets {
		w.Serve()
		w.Parts = nil
		w.NextLife(w.Server)
	}
}

func (f *serverDown) fail(w *environment) {
	for _, d := range []time.Duration{harness.TTL / 2, harness.TTL + harness.Interval/2} {
		if f.saves {
			require.NoError(w, w.Save(w.Context()).Err())
			w.Moves() // is lost
		}
		back := w.Outage("")
		release := func() {}
		if f.forgets { // nobody may write before the recording goes on
			release = harness.HoldAll(w.Proxies)
		}
		w.Server.Kill()
		if f.forgets {
			w.Forget()
		}
		harness.Lasting(d)
		w.CountersBeginAnew(w.Server.Restart)
		f.hit(1)
		if f.forgets {
			w.NextLife(w.Server)
		}
		release()
		back()
		w.heals(time.Now())
	}
}

// A stalled Redis makes the living look dead: their heartbeats run out while nobody can refresh
// them. Most often they are faster than the janitor when it goes on, and then nothing happens
// whatever the guard does. Here the janitor is first in the queue, with a batch against an owner
// that was silent when it was judged, and lives. The lease outlasts the stall, or the fence would
// answer before the witness.
var longLease = map[string]string{"JANITOR_LEASE_TTL": "30s"}

var stallRows = []row{
	{20, "RedisStopped", false, 60, longLease, stalled(stoppedServer)},
	{20, "RedisPaused", false, 60, longLease, stalled(paused("ALL"))},
	{20, "RedisPausedForWrites", false, 60, longLease, stalled(paused("WRITE"))},
	{20, "RedisAsleep", false, 60, longLease, stalled(asleep)},
	{26, "ClockJumpsForward", true, 60, longLease, stalled(jumped(100 * time.Second))},
	{26, "ClockJumpsBack", false, 60, longLease, stalled(jumped(-300 * time.Second))},
	{21, "RedisSlow", false, 60, nil, under(&slowServer{}, nothingSwept)},
	{21, "RedisBusy", false, 60, nil, under(&busyServer{}, nothingSwept)},
}

// stall stops the server and returns a function that waits until heartbeats that stood at its
// beginning have run out and lets the server go on. What is sent meanwhile waits in its sockets.
type stall func(w *environment) (over func())

func stalled(how stall) func(w *environment) {
	return under(&stallBefore{how: how}, func(w *environment, v *judge.Verdict) {
		nothingSwept(w, v)
		w.held(v, "gap") // others may have come after it
	})
}

// stallBefore is a stall at whose end a batch is the first thing that the server reads.
type stallBefore struct {
	calm
	how  stall
	from time.Time
}

func (f *stallBefore) begun() time.Time { return f.from }

func (*stallBefore) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--enable-debug-command", "local")...)
}

func (f *stallBefore) fail(w *environment) {
	ctx := w.Context()
	leader := w.Leader()
	owner := w.Follower()

	// A sweep first, so that the server knows the script: it is the delete itself that is to be
	// caught.
	w.Plant("ghost", 10, true)
	harness.Eventually(w, "the ghost is swept", func() bool { return w.unindexed("ghost") })

	// The owner is cut off and its heartbeat goes, so that it is judged dead at once.
	caught, send := leader.Proxy.HoldNext(harness.IsBatch)
	back := w.Outage(owner.ID)
	mute := owner.Proxy.Hold()
	w.Meddle("the heartbeat of "+owner.ID+" is lost", func(p redis.Pipeliner) { p.Del(ctx, w.Heartbeat(owner.ID)) })
	select {
	case <-caught:
	case <-time.After(harness.Patience):
		require.Fail(w, "nobody was judged dead")
	}

	// It is back before the batch is sent. The leader cannot know, nor ask again, nor give up: it
	// stands still.
	leader.Stop()
	mute.End()
	back()
	harness.Eventually(w, "the owner is back", w.beating)

	back = w.Outage("")
	release := harness.HoldAll(harness.ProxiesOf(w.Others(leader)))
	before := leader.Proxy.Verdicts()
	f.from = time.Now()
	over := f.how(w)
	send()
	over()
	harness.Eventually(w, "the batch is answered", func() bool { return !maps.Equal(before, leader.Proxy.Verdicts()) })
	f.hit(leader.Proxy.Verdicts()["HELD"] - before["HELD"])
	release()
	leader.Cont()
	back()
	w.heals(time.Now())
}

// outlast waits until whatever was alive has run out.
func outlast() { harness.Lasting(harness.TTL + harness.Interval/2) }

func stoppedServer(w *environment) (over func()) {
	w.Server.Stop()
	return func() {
		outlast()
		w.Server.Cont()
	}
}

func paused(mode string) stall {
	return func(w *environment) (over func()) {
		begun := time.Now()
		d := harness.TTL + harness.Interval/2
		require.NoError(w, w.Do(w.Context(), "CLIENT", "PAUSE", d.Milliseconds(), mode).Err())
		return func() { harness.Lasting(d - time.Since(begun)) }
	}
}

func asleep(w *environment) (over func()) {
	c, other := w.another(), w.another()
	slept := make(chan error, 1)
	go func() {
		slept <- c.Do(context.WithoutCancel(w.Context()), "DEBUG", "SLEEP", (harness.TTL + harness.Interval/2).Seconds()).Err()
	}()
	harness.Eventually(w, "the server sleeps", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), harness.Interval/4)
		defer cancel()
		return other.Ping(ctx).Err() != nil
	})
	return func() { require.NoError(w, <-slept) }
}

// jumped leaves everything as a jump of the server's clock does, which one machine cannot have for
// itself alone: if the clock went forward all that can expire has, and the witness last ticked
// long ago; if it went back, that was in the future.
func jumped(by time.Duration) stall {
	return func(w *environment) (over func()) {
		ctx := w.Context()
		tick, err := strconv.ParseInt(w.HGet(ctx, w.Witness(), "last").Val(), 10, 64)
		require.NoError(w, err)
		since, err := strconv.ParseInt(w.HGet(ctx, w.Witness(), "since").Val(), 10, 64)
		require.NoError(w, err)
		w.Meddle(fmt.Sprintf("the clock jumps by %v", by), func(p redis.Pipeliner) {
			p.HSet(ctx, w.Witness(), "last", tick-by.Milliseconds(), "since", since-by.Milliseconds())
			for _, r := range w.Replicas() {
				if by > 0 {
					p.Del(ctx, w.Heartbeat(r.ID))
				}
			}
		})
		return func() {}
	}
}

// nothingSwept: a slow server is no reason to evict anybody who lives. What was planted goes.
func nothingSwept(w *environment, v *judge.Verdict) {
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
	require.Equal(w, v.Evicted(""), v.Evicted("ghost"), "somebody who lives was evicted")
}

// slowServer answers, and late: every command may wait for another's third of a second.
type slowServer struct{ calm }

func (*slowServer) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--enable-debug-command", "local")...)
}

func (f *slowServer) fail(w *environment) {
	w.Plant("ghost", 500, true)
	c := w.another()
	for until := time.Now().Add(harness.TTL); time.Now().Before(until); harness.Lasting(50 * time.Millisecond) {
		require.NoError(w, c.Do(w.Context(), "DEBUG", "SLEEP", "0.3").Err())
		f.hit(1)
	}
}

// busyServer has somebody's script run for longer than the threshold: everybody is told BUSY until
// it has ended.
type busyServer struct{ calm }

// loops as long as it is told, in ms.
const loops = `local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local till = ms() + ARGV[1] while ms() < till do end return 1`

func (f *busyServer) fail(w *environment) {
	w.config("busy-reply-threshold", "100")
	w.Plant("ghost", 500, true)
	c, asked := w.another(), w.asked()
	begun := time.Now()
	for range 2 {
		require.NoError(w, c.Eval(w.Context(), loops, nil, (3*time.Second).Milliseconds()).Err())
		harness.Lasting(time.Second)
	}
	asked.noStorm(w, time.Since(begun))
	f.hit(asked.errors("BUSY"))
}

// memoryRows: memory is short. A cache that others fill evicts what can expire: heartbeats, and the
// lease. A server that evicts nothing refuses to write.
var memoryRows = []row{
	{24, "CacheEvictsLRU", false, 60, nil, evictedBy("volatile-lru")},
	{24, "CacheEvictsAtRandom", false, 60, nil, evictedBy("volatile-random")},
	{24, "CacheEvictsByTTL", false, 60, nil, evictedBy("volatile-ttl")},
	{24, "MemoryFull", false, 60, nil, under(&memoryFull{}, nothingWent)},
}

func evictedBy(policy string) func(w *environment) {
	return under(&sharedCache{policy: policy}, func(w *environment, v *judge.Verdict) {
		nothingWent(w, v)
		for _, r := range w.All {
			require.Contains(w, r.Log(), "maxmemory-policy is "+policy, "warned at start")
		}
	})
}

// sharedCache has somebody fill the server with keys that expire, and as many heartbeats evicted as
// there are replicas, over more than a TTL. Few and large, so that it is not always the other's
// keys that go.
type sharedCache struct {
	calm
	policy string
}

const (
	cacheValue = 10 << 10
	cacheRoom  = 100 << 10
)

func (f *sharedCache) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--maxmemory-policy", f.policy, "--maxmemory", "1gb", "--notify-keyspace-events", "Ee")...)
}

func (f *sharedCache) fail(w *environment) {
	ctx := w.Context()
	sub := w.Subscribe(ctx, "__keyevent@0__:evicted")
	_, err := sub.Receive(ctx)
	require.NoError(w, err)
	var others atomic.Int64
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for message := range sub.Channel() {
			if strings.HasPrefix(message.Payload, w.Heartbeat("")) {
				f.hit(1)
			} else {
				others.Add(1)
			}
		}
	}()
	w.config("maxmemory", w.used(cacheRoom))
	value, begun := strings.Repeat("v", cacheValue), time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begun) < harness.TTL+harness.Interval/2 || f.hits() < len(w.Replicas()) && time.Since(begun) < harness.Patience {
		// refused when nothing can be evicted any more
		_ = w.Set(ctx, "cache:"+time.Now().String(), value, time.Hour).Err()
		<-tick.C
	}
	w.config("maxmemory", "0")
	require.NoError(w, sub.Close())
	<-heard
	w.Logf("%d heartbeats and %d other keys were evicted", f.hits(), others.Load())
	w.heals(time.Now())
}

// used is how much memory the server uses, and some room.
func (w *environment) used(room int) string {
	n, err := strconv.Atoi(harness.InfoOf(w, w.Client, "Memory", "used_memory"))
	require.NoError(w, err)
	return strconv.Itoa(n + room)
}

// memoryFull: every write that needs memory is refused for longer than the TTL, but for beats.
type memoryFull struct{ calm }

func (*memoryFull) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--maxmemory-policy", "noeviction")...)
}

func (f *memoryFull) fail(w *environment) {
	asked, begun := w.asked(), time.Now()
	w.config("maxmemory", "1")
	outlast()
	require.True(w, w.beating(), "beats need not obey maxmemory")
	w.config("maxmemory", "0")
	f.hit(asked.errors("OOM"))
	asked.noStorm(w, time.Since(begun))
	w.heals(time.Now())
}
