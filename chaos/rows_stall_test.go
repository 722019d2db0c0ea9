package chaos

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

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
	{21, "RedisSlow", false, 60, nil, under(func() fault { return &slowServer{} }, nothingSwept)},
	{21, "RedisBusy", false, 60, nil, under(func() fault { return &busyServer{} }, nothingSwept)},
}

// stall stops the server and returns a function that waits until heartbeats that stood at its
// beginning have run out and lets the server go on. What is sent meanwhile waits in its sockets.
type stall func(w *environment) (over func())

func stalled(how stall) func(w *environment) {
	return under(func() fault { return &stallBefore{how: how} }, func(w *environment, v *judge.Verdict) {
		nothingSwept(w, v)
		require.Equal(w.T, "gap", v.Final.Hashes[w.Witness()]["reason"])
	})
}

// stallBefore is a stall at whose end a batch is the first thing that the server reads.
type stallBefore struct {
	calm
	how stall
}

func (*stallBefore) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--enable-debug-command", "local")...)
}

func (f *stallBefore) fail(w *environment) {
	ctx := w.T.Context()
	leader := w.Leader()
	owner := w.Follower()

	// A sweep first, so that the server knows the script: it is the delete itself that is to be
	// caught.
	w.Plant("ghost", 10, true)
	harness.Eventually(w.T, "the ghost is swept", func() bool { return w.SCard(ctx, w.Layout.Devices("ghost")).Val() == 0 })

	// The owner is cut off and its heartbeat goes, so that it is judged dead at once.
	caught, send := leader.Proxy.HoldNext(harness.IsBatch)
	back := w.Outage(owner.ID)
	mute := owner.Proxy.Hold()
	w.Meddle("the heartbeat of "+owner.ID+" is lost", func(p redis.Pipeliner) { p.Del(ctx, w.Heartbeat(owner.ID)) })
	select {
	case <-caught:
	case <-time.After(harness.Patience):
		require.Fail(w.T, "nobody was judged dead")
	}

	// It is back before the batch is sent. The leader cannot know, nor ask again, nor give up: it
	// stands still.
	leader.Stop()
	mute.End()
	back()
	harness.Eventually(w.T, "the owner is back", w.beating)

	back = w.Outage("")
	var holds []*proxy.Rule
	for _, r := range w.Replicas() {
		if r != leader {
			holds = append(holds, r.Proxy.Hold())
		}
	}
	before := leader.Proxy.Verdicts()
	over := f.how(w)
	send()
	over()
	harness.Eventually(w.T, "the batch is answered", func() bool { return !maps.Equal(before, leader.Proxy.Verdicts()) })
	f.hit(leader.Proxy.Verdicts()["WARMING"] - before["WARMING"])
	for _, h := range holds {
		h.End()
	}
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
		require.NoError(w.T, w.Do(w.T.Context(), "CLIENT", "PAUSE", d.Milliseconds(), mode).Err())
		return func() { harness.Lasting(d - time.Since(begun)) }
	}
}

func asleep(w *environment) (over func()) {
	c, other := w.another(), w.another()
	slept := make(chan error, 1)
	go func() {
		slept <- c.Do(context.WithoutCancel(w.T.Context()), "DEBUG", "SLEEP", (harness.TTL + harness.Interval/2).Seconds()).Err()
	}()
	harness.Eventually(w.T, "the server sleeps", func() bool {
		ctx, cancel := context.WithTimeout(w.T.Context(), harness.Interval/4)
		defer cancel()
		return other.Ping(ctx).Err() != nil
	})
	return func() { require.NoError(w.T, <-slept) }
}

// jumped leaves everything as a jump of the server's clock does, which one machine cannot have for
// itself alone: if the clock went forward all that can expire has, and the witness was last heard
// long ago; if it went back, that was in the future.
func jumped(by time.Duration) stall {
	return func(w *environment) (over func()) {
		ctx := w.T.Context()
		tick, err := strconv.ParseInt(w.HGet(ctx, w.Witness(), "last").Val(), 10, 64)
		require.NoError(w.T, err)
		since, err := strconv.ParseInt(w.HGet(ctx, w.Witness(), "since").Val(), 10, 64)
		require.NoError(w.T, err)
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
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
	require.Equal(w.T, v.Evicted(""), v.Evicted("ghost"), "somebody who lives was evicted")
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
		require.NoError(w.T, c.Do(w.T.Context(), "DEBUG", "SLEEP", "0.3").Err())
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
		require.NoError(w.T, c.Eval(w.T.Context(), loops, nil, (3*time.Second).Milliseconds()).Err())
		harness.Lasting(time.Second)
	}
	asked.noStorm(w, time.Since(begun))
	f.hit(asked.errors("BUSY"))
}
