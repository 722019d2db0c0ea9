package chaos

import (
	"slices"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/registry"
)

// livesRows are about several lives of one instance id.
var livesRows = []row{
	{17, "OlderProcessFrozen", false, 60, nil, olderProcessWakes(false)},
	{17, "OlderProcessFrozenMidHeal", false, 60, nil, olderProcessWakes(true)},
}

// A process is frozen, a newer one of its id boots and devices register there; then the older goes
// on. It writes nothing, hands nothing back and ends with status 1. Mid-heal: it had just read that
// its entries are lost, and would put them back.
func olderProcessWakes(midHeal bool) func(w *environment) {
	return func(w *environment) {
		met := w.opens()
		older := w.Replicas()[0]
		held := w.SMembers(w.Context(), w.Layout.Devices("one")).Val()
		w.Fleet.Losing(older)
		if midHeal {
			w.Meddle("its entries are lost", func(p redis.Pipeliner) { p.HDel(w.Context(), w.Registry(), held...) })
			older.Failpoints.Arm(w, failpoint.Comparing, "stop")
			older.Failpoints.Wait(w, failpoint.Comparing)
		} else {
			older.Stop()
		}
		harness.Eventually(w, "the kernel has stopped it", older.Stopped)
		answers := older.Proxy.Answers(func(r proxy.Request) bool {
			return slices.Contains([]string{"beat", "register", "heal", "release", "goodbye"}, harness.Named(r))
		})

		newer := w.Launch(w.Proxy(), "one")
		newer.Ready()
		first := []int{0, 3, 6, 9, 12} // of its devices: they do not wait for the older to end
		require.NoError(w, w.Fleet.ConnectAll(w.Context(), first, func(int) *harness.Replica { return newer }))
		is := func() (entries map[string]string, index []string) {
			index = w.SMembers(w.Context(), w.Layout.Devices("one")).Val()
			slices.Sort(index)
			return w.entries(), index
		}
		entries, index := is()
		require.Len(w, index, len(first))

		harness.Eventually(w, "the older process ends", func() bool {
			_ = older.Signal(syscall.SIGCONT) // again: the first may have come before the stop
			return !older.Runs()
		})
		require.Equal(w, 1, older.Exit(), older.Log())
		require.Contains(w, older.Log(), registry.ErrReplaced.Error())
		met.hit(answers.Counts()["SUPERSEDED"])
		require.Positive(w, met.hits(), "it was told nothing: this run proves nothing")
		require.Zero(w, answers.Counts()["OK"], "it wrote something")
		entriesNow, indexNow := is()
		require.Equal(w, entries, entriesNow)
		require.Equal(w, index, indexNow)

		w.Gone(older)
		w.Runs(newer)
		lost := w.Fleet.LostAt(older)
		require.Len(w, lost, len(held)-len(first))
		w.ends()
		v := w.judge()
		require.Zero(w, v.Evicted(""))
	}
}
