package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// pingers are the workers that send heartbeats at the same time, each the next one when it has its
// answer.
const pingers = 16

// heartbeats is what a heartbeat costs beside a bare SET.
func heartbeats(r *rig) {
	r.section("Availability: a heartbeat")
	r.say("%d workers, each with one heartbeat at a time, of %s mitras who are online. The floor is a SET of the same key and length.",
		pingers, many(r.mitras))
	n, ctx := r.beats, r.Context()
	m := r.seeded(crew(r.mitras))
	value := time.Now().UTC().Format(isoMS)
	_, err := m.Heartbeat(ctx, mitra(1)) // the server knows the script then
	require.NoError(r, err)
	id := func(i int) string { return mitra(i*2%r.mitras | 1) } // one that is active
	var late atomic.Int64
	run := func(step func(i int) error) func() cost {
		return func() cost {
			return r.measure(n, func() {
				var all sync.WaitGroup
				for w := range pingers {
					all.Go(func() {
						for i := w; i < n; i += pingers {
							if err := step(i); err != nil {
								r.Error(err)
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
	results := r.pairs(
		way{name: "SET", kind: floor, run: run(func(i int) error { return m.client.Set(ctx, heartbeatKey+id(i), value, 0).Err() })},
		way{name: "heartbeat", kind: ours, run: run(func(i int) error {
			for _, err := m.Heartbeat(ctx, id(i)); err != nil; _, err = m.Heartbeat(ctx, id(i)) {
				late.Add(1) // on a busy machine: it is sent again
			}
			return nil
		})},
	)
	r.costs(results)
	r.promiseMore("heartbeats of 16 workers: rate, × a bare SET", "%.2f", 1/results[1].wallRatio, 0.6)
	asked := map[string]int64{}
	for _, c := range results[1].costs[len(results[1].costs)-1].calls {
		asked[c.name] = c.count
	}
	require.GreaterOrEqual(r, asked["evalsha"], int64(n))
	require.LessOrEqual(r, asked["evalsha"], int64(n)+late.Load(), "one round trip each")
	require.Zero(r, asked["eval"])
}
