package bench

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// nobody is a socket that nobody minds.
var nobody = registry.Socket{Close: func() error { return nil }}

// reconcile is an owner that compares everything it holds with Redis, as it does after any
// surprise.
func reconcile(r *rig) {
	n := r.reconciled
	r.section("Reconciliation: an owner compares all of its claims")
	r.say("%s claims of one replica, all as they should be. Otherwise a tenth is compared each heartbeat.", many(n))
	r.clear()
	r.warm()
	p := r.replica("ingest-live-7d9f8b6c5-00000", nil)
	for i := range n {
		p.reg.Register(imei(i), nobody)
	}
	r.until(func() bool {
		wait.For(r.Context(), 50*time.Millisecond)
		return r.entries() == n && p.reg.Status().Pending == 0
	})

	surprises := 0
	var last time.Time
	results := r.compare(
		way{name: "HMGET 500, SSCAN of the index", kind: floor, run: func() cost {
			return r.measure(n, func() {
				r.compareEntries(n)
				r.scanIndex(p.reg.Instance(), n)
			})
		}},
		way{name: "all claims", kind: ours, run: func() cost {
			// it looks at everything once an interval at most
			wait.For(r.Context(), time.Until(last.Add(p.reg.Timing().Interval)))
			last = time.Now()
			return r.measure(n, func() {
				// A witness that says Redis may have lost entries is a surprise. The next answer to any
				// write tells of it.
				surprises++
				require.NoError(r, r.rdb.HSet(r.Context(), r.keys.Witness(), "lost", surprises).Err())
				c := p.reg.Register(imei(n), nobody)
				require.NoError(r, c.Wait(r.Context()))
				c.Release()
				r.until(func() bool {
					wait.For(r.Context(), 20*time.Millisecond)
					asked := map[string]int64{}
					for _, one := range r.calls() {
						asked[one.name] = one.count
					}
					return asked["hmget"] >= int64(n/batch) && asked["sscan"] >= int64(n/page)*95/100
				})
			})
		}},
	)
	r.costs(results)
	r.promise(fmt.Sprintf("reconciliation of %s: Redis CPU, × HMGET and SSCAN", many(n)), "%.2f", results[1].cpuRatio, 1.5)
	p.stop()
}

// compareEntries asks what each entry is.
func (r *rig) compareEntries(n int) {
	for i := 0; i < n; i += batch {
		fields := make([]string, 0, batch)
		for j := i; j < min(n, i+batch); j++ {
			fields = append(fields, imei(j))
		}
		require.NoError(r, r.rdb.HMGet(r.Context(), r.keys.Registry(), fields...).Err())
	}
}

// scanIndex asks what an owner's index holds.
func (r *rig) scanIndex(id string, n int) {
	met, all := 0, r.rdb.SScan(r.Context(), r.keys.Devices(id), 0, "", page).Iterator()
	for all.Next(r.Context()) {
		met++
	}
	require.NoError(r, all.Err())
	require.GreaterOrEqual(r, met, n)
}
