package chaos

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/registry"
)

// livesRows are about several lives of one instance id.
var livesRows = []row{
	{16, "SameIDRestartsBeforeTheDelete", true, 60, operated, sameIDRestartsBeforeTheDelete},
	{17, "OlderTokenRolledBack", false, 60, nil, olderTokenRolledBack},
	{17, "OlderProcessFrozen", false, 60, nil, olderProcessWakes(false)},
	{17, "OlderProcessFrozenMidHeal", false, 60, nil, olderProcessWakes(true)},
}

// An owner was judged dead, and the delete is on its way to Redis when a new process of its id
// boots and devices register there. The guard finds it alive: nothing of the new life goes.
func sameIDRestartsBeforeTheDelete(w *environment) {
	met := w.opens()
	leader, victim := w.Leader(), w.Follower()
	hold := leader.Proxy.HoldEach(harness.IsBatch)
	defer hold.End()
	_, lost := w.Kill(victim)
	batch := nextOf(w.T, hold.Caught)
	require.Contains(w.T, batch, victim.ID)

	again := w.Start(victim.ID)
	back := lost[:len(lost)/2]
	require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), back, func(int) *harness.Replica { return again }))
	w.Registered(0)
	for _, i := range back {
		require.Contains(w.T, batch, w.Fleet.IMEI(i), "it was to be deleted")
	}
	hold.End()
	// with a verdict: the first answer may be that the script is not known
	harness.Eventually(w.T, "the batch is answered", func() bool {
		v := leader.Proxy.Verdicts()
		return v["ALIVE"]+v["DONE"]+v["HELD"]+v["FENCED"] > 0
	})
	met.hit(leader.Proxy.Verdicts()["ALIVE"])
	w.sweeps()
	w.ends()
	v := w.judge()
	require.Positive(w.T, met.hits(), "%v", leader.Proxy.Verdicts())
	require.Zero(w.T, v.Evicted(""))
	require.Zero(w.T, leader.Proxy.NotUnderstood())
}

// After a failover the heartbeat may hold an older life's token. That is not a newer life: it is
// overwritten, the process goes on and no entry moves.
func olderTokenRolledBack(w *environment) {
	met := w.opens()
	old := w.Get(w.T.Context(), w.Heartbeat("one")).Val()
	_, lost := w.Kill(w.Replicas()[0])
	again := w.Start("one")
	require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), lost, func(int) *harness.Replica { return again }))
	w.rest()
	mine := w.Get(w.T.Context(), w.Heartbeat("one")).Val()
	_, token, _ := strings.Cut(mine, "/")
	require.NotContains(w.T, old, token)

	for range 3 {
		rolled := time.Now()
		w.Meddle("the heartbeat is an older life's again", func(p redis.Pipeliner) { p.Set(w.T.Context(), w.Heartbeat("one"), old, harness.TTL) })
		harness.Eventually(w.T, "it is overwritten", func() bool {
			return !again.Runs() || strings.HasSuffix(w.Get(w.T.Context(), w.Heartbeat("one")).Val(), "/"+token)
		})
		require.True(w.T, again.Runs(), again.Log())
		w.within("heartbeat overwritten", time.Since(rolled), harness.Interval)
		met.hit(1)
		for _, s := range w.spells() {
			require.False(w.T, s.owner == "one" && s.until.After(rolled), "entry %s did not stand", s.imei)
		}
	}
	w.Beats(2)
	w.ends()
	v := w.judge()
	require.Zero(w.T, v.Evicted(""))
}

// A process is frozen, a newer one of its id boots and devices register there; then the older goes
// on. It writes nothing, hands nothing back and ends with status 1. Mid-heal: it had just read that
// its entries are lost, and would put them back.
func olderProcessWakes(midHeal bool) func(w *environment) {
	return func(w *environment) {
		met := w.opens()
		older := w.Replicas()[0]
		held := w.SMembers(w.T.Context(), w.Layout.Devices("one")).Val()
		w.Fleet.Losing(older)
		if midHeal {
			w.Meddle("its entries are lost", func(p redis.Pipeliner) { p.HDel(w.T.Context(), w.Registry(), held...) })
			older.Failpoints.Arm(w.T, failpoint.Comparing, "stop")
			older.Failpoints.Wait(w.T, failpoint.Comparing)
		} else {
			older.Stop()
		}
		harness.Eventually(w.T, "the kernel has stopped it", older.Stopped)
		answers := older.Proxy.Answers(func(r proxy.Request) bool {
			return slices.Contains([]string{"beat", "register", "heal", "release", "goodbye"}, harness.Named(r))
		})

		newer := w.Launch(w.Proxy(), "one")
		newer.Ready()
		first := []int{0, 3, 6, 9, 12} // of its devices: they do not wait for the older to end
		require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), first, func(int) *harness.Replica { return newer }))
		is := func() (entries map[string]string, index []string) {
			index = w.SMembers(w.T.Context(), w.Layout.Devices("one")).Val()
			slices.Sort(index)
			return w.entries(), index
		}
		entries, index := is()
		require.Len(w.T, index, len(first))

		harness.Eventually(w.T, "the older process ends", func() bool {
			_ = older.Signal(syscall.SIGCONT) // again: the first may have come before the stop
			return !older.Runs()
		})
		require.Equal(w.T, 1, older.Exit(), older.Log())
		require.Contains(w.T, older.Log(), registry.ErrReplaced.Error())
		met.hit(answers.Counts()["SUPERSEDED"])
		require.Positive(w.T, met.hits(), "it was told nothing: this run proves nothing")
		require.Zero(w.T, answers.Counts()["OK"], "it wrote something")
		entriesNow, indexNow := is()
		require.Equal(w.T, entries, entriesNow)
		require.Equal(w.T, index, indexNow)

		w.Gone(older)
		w.Runs(newer)
		lost := w.Fleet.LostAt(older)
		require.Len(w.T, lost, len(held)-len(first))
		w.ends()
		v := w.judge()
		require.Zero(w.T, v.Evicted(""))
	}
}
