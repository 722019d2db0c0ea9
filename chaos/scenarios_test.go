package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/registry"
)

// plainRows are those without a fault object: each is told step by step.
var plainRows = []row{
	{2, "LeaderKilledMidPass", true, 300, slowSweep, leaderKilledMidPass},
	{7, "KilledWithoutGoodbye", true, 60, nil, killedWithoutGoodbye},
	{9, "GracefulHandover", true, 60, nil, gracefulHandover},
	{19, "FleetHops", true, 60, nil, fleetHops},
	{16, "RestartedUnderItsID", true, 60, nil, restartedUnderItsID},
	{17, "TwoProcessesOfOneID", true, 60, nil, twoProcessesOfOneID},
}

// slowSweep makes a pass over the ghosts last for seconds, so that a fault hits the middle of it.
// Each batch is late by a fixed time. A small share of Redis' time would slow a pass down on a busy
// machine much more than on another.
var slowSweep = map[string]string{
	"JANITOR_REDIS_SHARE": "1", "JANITOR_SCAN_COUNT": "50", "JANITOR_DELETE_BATCH": "50", harness.BatchDelay: "100ms", "ADMIN_TOKEN": adminToken,
}

// The leader is killed in the middle of a pass. Another leads, the pass is done again and to its
// end, and the killed one's own entries go. Half of its devices reconnect at once, the others stay
// away until their entries are gone.
func leaderKilledMidPass(w *environment) {
	const dead = 4000
	w.Plant("ghost", dead, false)
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, 300))
	w.Registered(dead)
	w.InPass(15)
	victim := w.Leader()
	_, lost := w.Kill(victim)
	require.Len(w, lost, 100)
	w.Spread(lost[:50])

	w.OneLeads()
	w.rest()
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), lost[50:], func(i int) *harness.Replica { return w.Replicas()[i%2] }))
	v := w.judge()
	for _, i := range lost {
		_, err := w.Fleet.Device(i).Report(w.Context(), 1)
		require.NoError(w, err)
	}

	require.Equal(w, dead, v.Evicted("ghost"))
	require.GreaterOrEqual(w, v.Evicted(victim.ID), 50)
	require.Equal(w, v.Evicted("")-v.FalseDeaths, v.Evicted("ghost")+v.Evicted(victim.ID), "somebody else's entries were evicted")
	require.Positive(w, v.EvictedBy(victim.ID), "it was not killed in mid-pass")
	require.Less(w, v.EvictedBy(victim.ID), dead, "it was not killed in mid-pass")
}

// A replica is killed. Its entries are gone within its heartbeat's TTL and one interval; everybody
// else's stay.
func killedWithoutGoodbye(w *environment) {
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, 60))
	w.rest()
	var ticks []*proxy.Score
	for _, r := range w.Replicas() {
		ticks = append(ticks, r.Proxy.Answers(harness.IsTick))
	}
	w.Listened()
	w.Beats(2)
	for i, r := range w.Replicas() {
		require.NotEmpty(w, ticks[i].Counts(), "%s does not listen: without a leader nobody would", r.ID)
	}
	victim := w.Replicas()[0]
	if victim == w.Leader() {
		victim = w.Replicas()[1]
	}
	_, lost := w.Kill(victim)
	v := w.judge()
	require.Equal(w, len(lost), v.Evicted(victim.ID))
	require.Equal(w, len(lost), v.Evicted("")-v.FalseDeaths, "somebody else's entries were evicted")
}

// The leader is asked to stop. Another leads at once, and nothing of it is left: no entry, no
// heartbeat, no lease.
func gracefulHandover(w *environment) {
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, 60))
	w.rest()
	former := w.OneLeads()
	handover := w.watchLease()

	var took time.Duration
	w.Ends(former, func() {
		w.Died(former, judge.Released)
		former.Term()
		took = handover()
		require.Zero(w, former.Exit(), former.Log())
	})
	require.Zero(w, w.Exists(w.Context(), w.Heartbeat(former.ID), w.Layout.Devices(former.ID)).Val(), "left behind")
	require.NotContains(w, w.HVals(w.Context(), w.Registry()).Val(), former.ID)
	require.NotEqual(w, former, w.OneLeads())
	v := w.judge()
	require.Zero(w, v.Evicted(""), "what was handed back needs no sweeping")
	w.within("new leader after the release", took, 100*time.Millisecond)
}

// watchLease begins to listen to what happens to the lease's key; the returned function waits for a
// release, and returns how long after it the lease was taken. H has no time for a DEL, so a third
// party takes it, with the same delay for both.
func (w *environment) watchLease() (handover func() time.Duration) {
	w.Helper()
	sub := w.Subscribe(w.Context(), "__keyspace@0__:"+w.Lease())
	w.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(w.Context())
	require.NoError(w, err)
	return func() time.Duration {
		var released time.Time
		ctx, cancel := context.WithTimeout(w.Context(), harness.Patience)
		defer cancel()
		for {
			msg, err := sub.ReceiveMessage(ctx)
			require.NoError(w, err)
			switch {
			case msg.Payload == "del":
				released = time.Now()
			case msg.Payload == "set" && !released.IsZero():
				return time.Since(released)
			}
		}
	}
}

// Devices hop among three replicas and back to the same one, and their old sockets close late. Each
// entry names where its device is, and when all have left none is there.
func fleetHops(w *environment) {
	w.Start("one", "two", "three")
	seed := rand.Uint64()
	w.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx, all := w.Context(), harness.Some(0, 60)
	for range 8 {
		to := make([]*harness.Replica, len(all))
		for i := range to {
			to[i] = w.Replicas()[rnd.IntN(3)]
		}
		require.NoError(w, w.Fleet.ConnectAll(ctx, all, func(i int) *harness.Replica { return to[i] }))
		for _, i := range all {
			if rnd.IntN(2) == 0 {
				w.Fleet.DropStale(i)
			}
			if rnd.IntN(2) == 0 {
				_, err := w.Fleet.Device(i).Report(ctx, 1)
				require.NoError(w, err)
			}
		}
		w.Hit(len(all))
		w.Registered(0)
	}
	// Each beat looks at a tenth of what a replica believes to hold, the sockets that were left
	// behind among it.
	w.Beats(5)
	w.Registered(0)
	for _, i := range all {
		w.Fleet.DropStale(i)
	}
	w.judge()
	w.Fleet.LeaveAll(all)
	v := w.judge()
	require.Zero(w, v.Evicted(""))
}

// A replica is killed and started again under its id before its heartbeat has expired. What its
// former life left is gone, and the devices that return stay.
func restartedUnderItsID(w *environment) {
	w.Start("one", "two")
	w.Spread(harness.Some(0, 60))
	w.rest()
	_, lost := w.Kill(w.Replicas()[0])
	again := w.Start("one")
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), lost[:20], func(int) *harness.Replica { return again }))
	v := w.judge()
	require.Zero(w, v.Evicted(""), "it came back too late: this says nothing")
	require.Len(w, w.Truth(), 50)
}

// A second process is started under the id of one that runs. The older ends, with an error that
// says why, and the newer's entries stand.
func twoProcessesOfOneID(w *environment) {
	w.Start("one", "two")
	w.Spread(harness.Some(0, 60))
	w.rest()
	older := w.Replicas()[0]
	w.Fleet.Losing(older)
	newer := w.Start("one")
	w.Hit(1)
	first := []int{0, 2, 4, 6, 8} // they do not wait for the older to end
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), first, func(int) *harness.Replica { return newer }))
	harness.Eventually(w, "the older process ends", func() bool { return !older.Runs() })
	require.Equal(w, 1, older.Exit(), older.Log())
	require.Contains(w, older.Log(), registry.ErrReplaced.Error())
	w.Gone(older)
	lost := w.Fleet.LostAt(older)
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), lost, func(int) *harness.Replica { return newer }))
	v := w.judge()
	require.Zero(w, v.Evicted(""))
}

// within asserts a bound, with what a busy machine may add to it, and says what was measured.
func (w *environment) within(what string, took, bound time.Duration) {
	w.Helper()
	w.remark("%s: %v (bound %v)", what, took.Round(time.Millisecond), bound)
	require.LessOrEqual(w, took, bound+harness.BusyMachine, what)
}
