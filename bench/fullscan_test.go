package bench

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
)

// fullScanOf is one pass over a registry in which everybody lives: what is paid each interval,
// whether or not anybody died.
func fullScanOf(r *rig) {
	r.section("Full scan: one pass over live entries")
	r.say("Owners: %d, all alive. Ours is a pass of the janitor at a full share of Redis. Small registries are read several times in a row.", bystanders)
	ids := owners("live", bystanders)
	for _, n := range r.scans {
		r.clear()
		r.warm()
		r.live(ids...)
		r.fill(0, n, false, ids...)
		jan := r.replica("ingest-leader", nil).leads()

		results := r.often(n,
			way{name: "HSCAN COUNT 1000", kind: floor, run: func() cost { return r.withHeap(n, func() { r.scanAll(n) }) }},
			way{name: "janitor", kind: ours, run: func() cost {
				var report janitor.Report
				c := r.withHeap(n, func() { report = jan.pass() })
				require.GreaterOrEqual(r, report.Scanned, n)
				require.Zero(r, report.Condemned)
				return c
			}},
		)
		jan.stop()
		r.say("### %s entries", many(n))
		r.costs(results)
		r.promiseScan(n, results[0], results[1])
		r.promiseHeap(fmt.Sprintf("full scan of %s", many(n)), results[1])
	}
}

func (r *rig) promiseHeap(of string, w result) {
	r.promise(of+": our heap over idle, MiB", "%.1f", w.medianOf(func(c cost) float64 { return float64(c.heap) })/(1<<20), 32)
}

// promiseScan compares a pass with the bare loop. Below a thousand entries an owner the fixed cost
// of each owner dominates any ratio, so the target is the extra time of a pass.
func (r *rig) promiseScan(n int, bare, pass result) {
	if n >= 1000*bystanders {
		r.promise(fmt.Sprintf("full scan of %s: Redis CPU, × HSCAN loop", many(n)), "%.2f", pass.cpuRatio, 1.05)
		return
	}
	var extra []float64
	for i, c := range pass.costs {
		passes := float64(c.n) / float64(n)
		extra = append(extra, ms(c.cpu-bare.costs[i].cpu)/passes)
	}
	r.promise(fmt.Sprintf("full scan of %s, %d owners: Redis CPU above the HSCAN loop, ms", many(n), bystanders), "%.2f", median(extra), 2)
}

// scanAll is the bare loop.
func (r *rig) scanAll(n int) {
	met, all := 0, r.rdb.HScan(r.Context(), r.keys.Registry(), 0, "", page).Iterator()
	for all.Next(r.Context()) {
		met++
	}
	require.NoError(r, all.Err())
	require.GreaterOrEqual(r, met, 2*n)
}

// withHeap is measure, with the most that our heap grew meanwhile. Work on a few entries is done
// often enough for Redis' clock to measure it.
func (r *rig) withHeap(n int, once func()) cost {
	times := max(1, min(10*enough, r.scans[len(r.scans)-1])/n)
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	look := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	runtime.GC()
	idle := look()
	var (
		most int64
		wg   sync.WaitGroup
		done = make(chan struct{})
	)
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, look()-idle)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	c := r.measure(n*times, func() {
		for range times {
			once()
		}
	})
	close(done)
	wg.Wait()
	c.heap = max(0, most)
	return c
}
