package chaos

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// plainRows are those without a fault object: each is told as a story.
var plainRows = []row{
	{2, "LeaderKilledMidPass", true, 300, slowSweep, leaderKilledMidPass},
	{4, "LeaderStoppedMidPass", true, 60, nil, leaderStoppedMidPass},
	{7, "KilledWithoutGoodbye", true, 60, nil, killedWithoutGoodbye},
	{9, "GracefulHandover", true, 60, nil, gracefulHandover},
	{19, "FleetHops", true, 60, nil, fleetHops},
	{16, "RestartedUnderItsID", true, 60, nil, restartedUnderItsID},
	{17, "TwoProcessesOfOneID", true, 60, nil, twoProcessesOfOneID},
}

// slowSweep makes a pass last long enough to be hit in its middle.
var slowSweep = map[string]string{"JANITOR_REDIS_SHARE": "0.008", "JANITOR_SCAN_COUNT": "50", "JANITOR_DELETE_BATCH": "50"}

// The leader is killed in the middle of a pass. Another leads, the pass is done again and to its end, and the killed one's own
// entries go. Half of its devices reconnect at once, the others stay away until their entries are gone.
func leaderKilledMidPass(w *world) {
	const dead = 4000
	w.plant("ghost", dead, false)
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, 300))
	w.registered(dead)
	w.inPass(15)
	victim := w.leader()
	_, lost := w.kill(victim)
	require.Len(w.t, lost, 100)
	w.spread(lost[:50])

	w.oneLeads()
	w.rest()
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), lost[50:], func(i int) *replica { return w.fleet()[i%2] }))
	v := w.judge()
	for _, i := range lost {
		_, err := w.devices.Report(w.t.Context(), i, 1)
		require.NoError(w.t, err)
	}

	require.Equal(w.t, dead, v.Evicted("ghost"))
	require.GreaterOrEqual(w.t, v.Evicted(victim.id), 50)
	require.Equal(w.t, v.Evicted("")-v.FalseDeaths, v.Evicted("ghost")+v.Evicted(victim.id), "somebody else's entries were evicted")
	require.Positive(w.t, v.EvictedBy(victim.id), "it was not killed in mid-pass")
	require.Less(w.t, v.EvictedBy(victim.id), dead, "it was not killed in mid-pass")
}

// The leader is stopped in the middle of a pass over 300,000 dead entries. A successor is elected, the dead owner comes back and
// registers 20,000, and then the former leader wakes up: none of the 20,000 may go.
func leaderStoppedMidPass(w *world) {
	const dead, back = 300_000, 20_000
	imeis := w.plant("ghost", dead, true)
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, 60))
	w.inPass(20)
	former := w.leader()
	cont := w.stop(former)
	stopped := time.Now()
	eventually(w.t, "a successor leads", func() bool { h := w.holder(); return h != "" && h != former.id })

	owner := w.embed("ghost")
	claims := make([]*registry.Claim, back)
	for i := range claims {
		claims[i] = owner.Register(w.t.Context(), imeis[i*(dead/back)])
	}
	for i, c := range claims {
		require.NoError(w.t, c.Wait(w.t.Context()))
		imei := imeis[i*(dead/back)]
		w.claims[imei] = "ghost"
		w.devices.claimed(imei, "ghost")
	}
	w.t.Logf("%d are back %v after the leader was stopped", back, time.Since(stopped))
	cont()

	eventually(w.t, "the former leader knows that it is none", func() bool {
		s, err := former.status()
		return err == nil && !s.Janitor.Leading && s.Janitor.Leader != former.id && s.Janitor.Unsettled == 0
	})
	require.NotEqual(w.t, former, w.oneLeads())
	v := w.judge("ghost")
	require.Positive(w.t, v.EvictedBy(former.id), "it was not stopped in mid-pass")
	require.Less(w.t, v.Evicted("ghost"), dead, "it was not stopped in mid-pass")
	w.t.Logf("%d were evicted, the others handed back by their owner", v.Evicted("ghost"))
}

// embed runs a registry in this process, without sockets, until the scenario ends.
func (w *world) embed(id string) *registry.Registry { return w.embedAt(id, w.server.Addr()) }

// embedAt is embed at an address.
func (w *world) embedAt(id, addr string) *registry.Registry {
	w.t.Helper()
	o := &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true}
	data, control := redis.NewClient(o), redis.NewClient(lease.Options(o))
	r, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: id, HeartbeatInterval: interval, HeartbeatTTL: ttl, Drain: time.Nanosecond, NoReverseIndex: w.unindexed(),
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
		require.NoError(w.t, data.Close())
		require.NoError(w.t, control.Close())
	})
	return r
}

// A replica is killed. Its entries are gone within its heartbeat's TTL and one interval; everybody else's stay.
func killedWithoutGoodbye(w *world) {
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, 60))
	w.rest()
	var ticks []*proxy.Score
	for _, r := range w.fleet() {
		ticks = append(ticks, r.proxy.Answers(isTick))
	}
	w.listened()
	w.beats(2)
	for i, r := range w.fleet() {
		require.NotEmpty(w.t, ticks[i].Counts(), "%s does not listen: without a leader nobody would", r.id)
	}
	victim := w.fleet()[0]
	if victim == w.leader() {
		victim = w.fleet()[1]
	}
	_, lost := w.kill(victim)
	v := w.judge()
	require.Equal(w.t, len(lost), v.Evicted(victim.id))
	require.Equal(w.t, len(lost), v.Evicted("")-v.FalseDeaths, "somebody else's entries were evicted")
}

// The leader is asked to stop. Another leads at once, and nothing of it is left: no entry, no heartbeat, no lease.
func gracefulHandover(w *world) {
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, 60))
	w.rest()
	former := w.oneLeads()
	handover := w.watchLease()

	w.devices.losing(former)
	w.died(former, judge.Released)
	former.term()
	took := handover()
	require.Zero(w.t, former.exit(), former.Log())
	w.gone(former)
	w.devices.lost(former)
	require.Zero(w.t, w.Exists(w.t.Context(), w.Heartbeat(former.id), w.Layout.Devices(former.id)).Val(), "left behind")
	require.NotContains(w.t, w.HVals(w.t.Context(), w.Registry()).Val(), former.id)
	require.NotEqual(w.t, former, w.oneLeads())
	v := w.judge()
	require.Zero(w.t, v.Evicted(""), "what was handed back needs no sweeping")
	w.within("new leader after the release", took, 100*time.Millisecond)
}

// watchLease begins to listen to what happens to the lease's key; the returned function waits for a release, and returns how
// long after it the lease was taken. H has no time for a DEL, so a third party takes it, with the same delay for both.
func (w *world) watchLease() (handover func() time.Duration) {
	w.t.Helper()
	sub := w.Subscribe(w.t.Context(), "__keyspace@0__:"+w.Lease())
	w.t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(w.t.Context())
	require.NoError(w.t, err)
	return func() time.Duration {
		var released time.Time
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		defer cancel()
		for {
			msg, err := sub.ReceiveMessage(ctx)
			require.NoError(w.t, err)
			switch {
			case msg.Payload == "del":
				released = time.Now()
			case msg.Payload == "set" && !released.IsZero():
				return time.Since(released)
			}
		}
	}
}

// Devices hop among three replicas and back to the same one, and their old sockets close late. Each entry names where its device
// is, and when all have left none is there.
func fleetHops(w *world) {
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	seed := rand.Uint64()
	w.t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx, all := w.t.Context(), some(0, 60)
	for range 8 {
		to := make([]*replica, len(all))
		for i := range to {
			to[i] = w.fleet()[rnd.IntN(3)]
		}
		require.NoError(w.t, w.devices.moveAll(ctx, all, func(i int) *replica { return to[i] }))
		for _, i := range all {
			if rnd.IntN(2) == 0 {
				w.devices.DropStale(i)
			}
			if rnd.IntN(2) == 0 {
				_, err := w.devices.Report(ctx, i, 1)
				require.NoError(w.t, err)
			}
		}
		w.hit(len(all))
		w.registered(0)
	}
	// Each beat looks at a tenth of what a replica believes to hold, the sockets that were left behind among it.
	w.beats(5)
	w.registered(0)
	for _, i := range all {
		w.devices.DropStale(i)
	}
	w.judge()
	w.devices.leaveAll(all)
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
}

// A replica is killed and started again under its id before its heartbeat has expired. What its former life left is gone, and
// the devices that return stay.
func restartedUnderItsID(w *world) {
	for _, id := range []string{"one", "two"} {
		w.start(id)
	}
	w.spread(some(0, 60))
	w.rest()
	_, lost := w.kill(w.fleet()[0])
	again := w.start("one")
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), lost[:20], func(int) *replica { return again }))
	v := w.judge()
	require.Zero(w.t, v.Evicted(""), "it came back too late: this says nothing")
	require.Len(w.t, w.truth(), 50)
}

// A second process is started under the id of one that runs. The older ends, with an error that says why, and the newer's
// entries stand.
func twoProcessesOfOneID(w *world) {
	for _, id := range []string{"one", "two"} {
		w.start(id)
	}
	w.spread(some(0, 60))
	w.rest()
	older := w.fleet()[0]
	w.devices.losing(older)
	newer := w.start("one")
	w.hit(1)
	first := []int{0, 2, 4, 6, 8} // they do not wait for the older to end
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), first, func(int) *replica { return newer }))
	eventually(w.t, "the older process ends", older.ended)
	require.Equal(w.t, 1, older.exit(), older.Log())
	require.Contains(w.t, older.Log(), registry.ErrSuperseded.Error())
	w.gone(older)
	lost := w.devices.lost(older)
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), lost, func(int) *replica { return newer }))
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
}

// within asserts a bound, with what a busy machine may add to it, and says what was measured.
func (w *world) within(what string, took, bound time.Duration) {
	w.t.Helper()
	w.remark("%s: %v (bound %v)", what, took.Round(time.Millisecond), bound)
	require.LessOrEqual(w.t, took, bound+busy, what)
}
