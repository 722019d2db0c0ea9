package chaos

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/registry"
)

// livesRows are about several lives of one instance id.
var livesRows = []row{
	{16, "SameIDRestartsBeforeTheDelete", true, 60, nil, sameIDRestartsBeforeTheDelete},
	{17, "OlderTokenRolledBack", false, 60, nil, olderTokenRolledBack},
	{17, "OlderProcessFrozen", false, 60, nil, olderProcessWakes(false)},
	{17, "OlderProcessFrozenMidHeal", false, 60, nil, olderProcessWakes(true)},
}

// An owner was judged dead, and the delete is on its way to Redis when a new process of its id boots and devices register there.
// The guard finds it alive: nothing of the new life goes.
func sameIDRestartsBeforeTheDelete(w *world) {
	met := w.opens()
	leader, victim := w.leader(), w.follower()
	hold := leader.proxy.HoldEach(isBatch)
	defer hold.End()
	_, lost := w.kill(victim)
	batch := nextOf(w.t, hold.Caught)
	require.Contains(w.t, batch, victim.id)

	again := w.start(victim.id)
	back := lost[:len(lost)/2]
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), back, func(int) *replica { return again }))
	w.registered(0)
	for _, i := range back {
		require.Contains(w.t, batch, w.devices.IMEI(i), "it was to be deleted")
	}
	released := time.Now()
	hold.End()
	eventually(w.t, "the batch is answered", func() bool { // with a verdict: the first answer may be that the script is not known
		v := leader.proxy.verdicts()
		return v["ALIVE"]+v["DONE"]+v["WARMING"]+v["FENCED"] > 0
	})
	met.hit(leader.proxy.verdicts()["ALIVE"])
	w.sweeps(released)
	w.ends()
	v := w.judge()
	require.Positive(w.t, met.hits(), "%v", leader.proxy.verdicts())
	require.Zero(w.t, v.Evicted(""))
	require.Zero(w.t, leader.proxy.NotUnderstood())
}

// After a failover the heartbeat may hold an older life's token. That is not a newer life: it is overwritten, the process goes on
// and no entry moves.
func olderTokenRolledBack(w *world) {
	met := w.opens()
	old := w.Get(w.t.Context(), w.Heartbeat("one")).Val()
	_, lost := w.kill(w.fleet()[0])
	again := w.start("one")
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), lost, func(int) *replica { return again }))
	w.rest()
	mine := w.Get(w.t.Context(), w.Heartbeat("one")).Val()
	_, token, _ := strings.Cut(mine, "/")
	require.NotContains(w.t, old, token)

	for range 3 {
		rolled := time.Now()
		w.meddle("the heartbeat is an older life's again", func(p redis.Pipeliner) { p.Set(w.t.Context(), w.Heartbeat("one"), old, ttl) })
		eventually(w.t, "it is overwritten", func() bool {
			return again.ended() || strings.HasSuffix(w.Get(w.t.Context(), w.Heartbeat("one")).Val(), "/"+token)
		})
		require.False(w.t, again.ended(), again.Log())
		w.within("heartbeat overwritten", time.Since(rolled), interval)
		met.hit(1)
		for _, s := range w.spells() {
			require.False(w.t, s.owner == "one" && s.until.After(rolled), "entry %s did not stand", s.imei)
		}
	}
	w.beats(2)
	w.ends()
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
}

// A process is frozen, a newer one of its id boots and devices register there; then the older goes on. It writes nothing, hands
// nothing back and ends with status 1. Mid-heal: it had just read that its entries are lost, and would put them back.
func olderProcessWakes(midHeal bool) func(w *world) {
	return func(w *world) {
		met := w.opens()
		older := w.fleet()[0]
		held := w.SMembers(w.t.Context(), w.Layout.Devices("one")).Val()
		w.devices.losing(older)
		if midHeal {
			w.meddle("its entries are lost", func(p redis.Pipeliner) { p.HDel(w.t.Context(), w.Registry(), held...) })
			older.points.arm(w.t, failpoint.Comparing, "stop")
			older.points.wait(w.t, failpoint.Comparing)
		} else {
			older.stop()
		}
		eventually(w.t, "the kernel has stopped it", older.Stopped)
		answers := older.proxy.Answers(func(r proxy.Request) bool {
			return slices.Contains([]string{"beat", "register", "heal", "release", "goodbye"}, named(r))
		})

		newer := w.launch("one")
		newer.ready()
		first := []int{0, 3, 6, 9, 12} // of its devices: they do not wait for the older to end
		require.NoError(w.t, w.devices.moveAll(w.t.Context(), first, func(int) *replica { return newer }))
		is := func() (entries map[string]string, index []string) {
			index = w.SMembers(w.t.Context(), w.Layout.Devices("one")).Val()
			slices.Sort(index)
			return w.HGetAll(w.t.Context(), w.Registry()).Val(), index
		}
		entries, index := is()
		require.Len(w.t, index, len(first))

		eventually(w.t, "the older process ends", func() bool {
			_ = older.Signal(syscall.SIGCONT) // again: the first may have come before the stop
			return older.ended()
		})
		require.Equal(w.t, 1, older.exit(), older.Log())
		require.Contains(w.t, older.Log(), registry.ErrSuperseded.Error())
		met.hit(answers.Counts()["SUPERSEDED"])
		require.Positive(w.t, met.hits(), "it was told nothing: this run proves nothing")
		require.Zero(w.t, answers.Counts()["OK"], "it wrote something")
		entriesNow, indexNow := is()
		require.Equal(w.t, entries, entriesNow)
		require.Equal(w.t, index, indexNow)

		w.gone(older)
		w.running(newer)
		lost := w.devices.lost(older)
		require.Len(w.t, lost, len(held)-len(first))
		w.ends()
		v := w.judge()
		require.Zero(w.t, v.Evicted(""))
	}
}
