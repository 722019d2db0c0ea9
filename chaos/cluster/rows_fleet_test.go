package cluster

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/guard"
)

// fleetOfThirty is as many replicas and devices as two cores bear, on sixteen partitions. It says
// how long each took; how long that may take is no matter of right and wrong on a busy machine.
var fleetOfThirty = row{
	name: "FleetOfThirty", partitions: 16, interval: 2 * time.Second, ttl: 10 * time.Second,
	replicas: 30, devices: 20_000, alone: true,
	start: threeMasters,
	fault: func(w *world) {
		w.ready()
		w.timesDeath()
		w.timesFailover()
		w.cluster.BeginMove(w.home.Registry(), w.other(w.master()))()
		sourceDies(w)
	},
}

// timesDeath kills a replica, and waits until nothing names it.
func (w *world) timesDeath() {
	w.Helper()
	id, ctx := w.someone(), w.Context()
	w.kill(id)
	ends := map[guard.Layout]time.Time{}
	for _, l := range w.told.layouts {
		left, err := w.rdb.PTTL(ctx, l.Heartbeat(id)).Result()
		require.NoError(w, err)
		ends[l] = time.Now().Add(left)
	}
	worst := time.Duration(0)
	harness.Eventually(w.T, "its entries are gone", func() bool {
		for l, end := range ends {
			if w.rdb.SCard(ctx, l.Devices(id)).Val() > 0 {
				continue
			}
			after := time.Since(end)
			entries, err := w.rdb.HVals(ctx, l.Registry()).Result()
			if err == nil && !slices.Contains(entries, id) {
				worst = max(worst, after)
				delete(ends, l)
			}
		}
		return len(ends) == 0
	})
	w.Logf("a replica died: its last entry was gone %s after its heartbeat's end, of %d partitions (goal: 2s)",
		worst.Round(time.Millisecond), len(w.told.layouts))
}

// timesFailover kills a master, has a device of each of its partitions connect elsewhere, and waits
// until all entries name where they are.
func (w *world) timesFailover() {
	w.Helper()
	m, ctx := w.master(), w.Context()
	var lost []guard.Layout
	for _, l := range w.told.layouts {
		if w.cluster.Owner(l.Registry()) == m {
			lost = append(lost, l)
		}
	}
	begun := time.Now()
	m.Kill()
	moved := map[string]guard.Layout{}
	w.mu.Lock()
	for i := 0; len(lost) > 0; i++ {
		one := imei(i)
		l := base.Partition(guard.PartitionOf(one, w.row.partitions), w.row.partitions)
		if !slices.Contains(lost, l) || w.present[one] == nil {
			continue
		}
		lost = slices.DeleteFunc(lost, func(other guard.Layout) bool { return other == l })
		moved[one] = l
		to := w.replicas[i%len(w.replicas)]
		if to.id == w.present[one].owner {
			to = w.replicas[(i+1)%len(w.replicas)]
		}
		require.NoError(w, w.claim(one, to))
	}
	w.mu.Unlock()
	harness.Eventually(w.T, "who connected elsewhere is found there", func() bool {
		for one, l := range moved {
			is := w.rdb.HGet(ctx, l.Registry(), one).Val()
			w.mu.Lock()
			there := w.present[one] != nil && is == w.present[one].owner
			w.mu.Unlock()
			if !there {
				return false
			}
		}
		return true
	})
	w.Logf("a master died: who connected elsewhere then is found in its %d partitions after %s (goal: %s and 3s)",
		len(moved), time.Since(begun).Round(time.Millisecond), w.row.nodeTimeout)
	w.restart(m)
	w.cluster.AwaitOK()
}
