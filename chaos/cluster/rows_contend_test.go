package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// contendRows are about a node that hangs.
var contendRows = []row{
	{
		name: "ReplicaNodeHangs", partitions: 4, interval: slowInterval, ttl: slowTTL,
		nodeTimeout: time.Minute, start: threeMasters, fault: nodeHangs((*world).replicaOf),
	},
	{
		name: "MasterOfOtherPartitionsHangs", partitions: 4, interval: slowInterval, ttl: slowTTL,
		nodeTimeout: time.Minute, start: threeMasters, fault: nodeHangs((*world).itself),
	},
}

func (w *world) itself(m *redistest.Server) *redistest.Server { return m }

// A node stops answering, and the other nodes do not call it failed. Devices of partitions on other
// masters register as before, though owners dispute others.
func nodeHangs(which func(w *world, m *redistest.Server) *redistest.Server) func(w *world) {
	return func(w *world) {
		w.kill(w.someone())
		w.ready()
		m := w.master()
		node := which(w, m)
		without := w.onMaster(m)
		usual := w.registers(without, 0)
		node.Stop()
		hung := w.registers(without, 1)
		node.Cont()
		w.cluster.AwaitOK()
		w.Logf("a registration on another master: 90 %% within %s, while a node hangs within %s", usual, hung)
		require.Less(w, hung, time.Second, "later it overwrites nothing")
	}
}

// registers has new devices connect to all partitions except some, one after the other, and returns
// within how long nine of ten are found there.
func (w *world) registers(without []guard.Layout, round int) time.Duration {
	w.Helper()
	var took []time.Duration
	for i := 0; len(took) < 60; i++ {
		one := imei(1_000_000*(round+1) + i)
		l := base.Partition(guard.PartitionOf(one, w.row.partitions), w.row.partitions)
		if slices.Contains(without, l) {
			continue
		}
		w.mu.Lock()
		open := w.running()
		to := open[i%len(open)]
		begun := time.Now()
		require.NoError(w, w.claim(one, to))
		w.mu.Unlock()
		harness.Eventually(w, fmt.Sprintf("%s is found", one), func() bool {
			return w.rdb.HGet(w.Context(), l.Registry(), one).Val() == to.id
		})
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)*9/10]
}

// onMaster returns the partitions that a master had at the start.
func (w *world) onMaster(m *redistest.Server) (all []guard.Layout) {
	for _, l := range w.told.layouts {
		if w.cluster.Owner(l.Registry()) == m {
			all = append(all, l)
		}
	}
	return all
}
