package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// contendRows are about who contends for the leases of partitions, and about a node that hangs.
var contendRows = []row{
	{
		name: "MostKilledAtOnce", partitions: 16, interval: slowInterval, ttl: slowTTL, replicas: 7, devices: 500,
		start: threeMasters, fault: mostKilled, returns: true,
	},
	{
		name: "RegistriesAloneBesideFewJanitors", partitions: 16, interval: quickInterval, ttl: quickTTL, replicas: 3,
		start: threeMasters, fault: aloneBesideFew,
	},
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

// ledBy returns who holds the lease of each partition, by instance.
func (w *world) ledBy() (ids []string) {
	for _, l := range w.told.layouts {
		token := w.rdb.Get(w.Context(), l.Lease()).Val()
		id, _, _ := strings.Cut(token, "/")
		ids = append(ids, id)
	}
	return ids
}

// allLed waits until living replicas hold all leases.
func (w *world) allLed(dead ...string) {
	w.Helper()
	begun := time.Now()
	harness.Eventually(w.T, "all partitions are led", func() bool {
		return !slices.ContainsFunc(w.ledBy(), func(id string) bool { return id == "" || slices.Contains(dead, id) })
	})
	w.Logf("all partitions are led %s after %d died", time.Since(begun).Round(time.Millisecond), len(dead))
	require.Less(w, time.Since(begun), 2*leaseTTL+harness.BusyMachine)
}

// All replicas but one die at one instant, so nearly all that contend first. The last one leads all
// partitions and leaves no gap.
func mostKilled(w *world) {
	w.ready()
	died := time.Now()
	var dead []string
	for range w.row.replicas - 1 {
		dead = append(dead, w.someone())
		w.kill(dead[len(dead)-1])
	}
	w.allLed(dead...)
	harness.Lasting(w.row.ttl)
	for _, l := range w.told.layouts {
		r, err := guard.ReadWitness(w.Context(), w.rdb, l)
		require.NoError(w, err)
		require.False(w, r.LastHold.After(died), r.Reason)
	}
	w.joins()
}

// Twelve replicas embed the registry alone, three sweep. One of each dies: bounds are as without
// the twelve.
func aloneBesideFew(w *world) {
	w.mu.Lock()
	janitors := len(w.replicas)
	w.mu.Unlock()
	w.launch(append(w.env, envAlone+"=1"), 12)
	harness.Lasting(2 * w.row.ttl)
	w.ready()
	for range 20 { // nobody gives leases up to those that never take them
		ids := w.ledBy()
		require.NotContains(w, ids, "", "a partition is not led")
		harness.Lasting(leaseTTL / 10)
	}
	w.mu.Lock()
	one, other := w.replicas[0].id, w.replicas[janitors].id
	w.mu.Unlock()
	w.kill(one)
	w.kill(other)
	w.allLed(one, other)
}

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
		harness.Eventually(w.T, fmt.Sprintf("%s is found", one), func() bool {
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
