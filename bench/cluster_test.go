package bench

import (
	"fmt"

	"github.com/stretchr/testify/require"
)

// beyondOneServer is what the same work costs on a Redis Cluster. All keys of a partition are on
// one of its masters.
func beyondOneServer(r *rig) {
	n := r.fullScans[0]
	for _, size := range r.fullScans {
		if size <= 1_000_000 {
			n = size
		}
	}
	r.section("Redis Cluster: the same work on three masters")
	r.say("One partition. The floor is the same work of the same program on one server.")
	c := r.onCluster()
	const id = "ingest-live-7d9f8b6c5-00000"
	storms := r.compare(
		way{name: "storm, one server", kind: floor, run: func() cost { return r.registerAll(id, r.storm) }},
		way{name: "storm, three masters", kind: ours, run: func() cost { return c.registerAll(id, r.storm) }},
	)
	scans := r.compare(
		way{name: "full scan, one server", kind: floor, run: r.scanner(n)},
		way{name: "full scan, three masters", kind: ours, run: c.scanner(n)},
	)
	var rows [][]string
	for _, one := range []result{storms[0], storms[1], scans[0], scans[1]} {
		mid := one.mid()
		rows = append(rows, []string{
			one.name, string(one.kind), many(mid.n), brief(mid.cpu), brief(mid.perEntry(mid.cpu)),
			fmt.Sprintf("%.2f (%.2f–%.2f)", one.cpuRatio, one.low, one.high), fmt.Sprintf("%.2f", one.wallRatio),
		})
	}
	r.table([]string{"way", "", "entries", "Redis CPU", "per entry", "× one server (range)", "wall, × one server"}, rows)
	r.promise(fmt.Sprintf("storm of %s on a Cluster: Redis CPU, × one server", many(r.storm)), "%.2f", storms[1].cpuRatio, 1.25)
	r.promise(fmt.Sprintf("full scan of %s on a Cluster: Redis CPU, × one server", many(n)), "%.2f", scans[1].cpuRatio, 1.25)
}

// scanner fills a registry of living owners, and returns one pass over it.
func (r *rig) scanner(n int) func() cost {
	r.clear()
	r.warm()
	ids := owners("live", bystanders)
	r.live(ids...)
	r.fill(0, n, false, ids...)
	jan := r.replica("ingest-leader", nil).leads()
	return func() cost {
		return r.measure(n, func() { require.GreaterOrEqual(r.t, jan.pass().Scanned, n) })
	}
}
