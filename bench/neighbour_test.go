package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// neighbourPace is how often the neighbour asks.
const neighbourPace = time.Millisecond

// besideANeighbour is what somebody else on the same Redis notices of a sweep.
func besideANeighbour(r *rig) {
	n := r.neighbour
	r.section("A neighbour on the same Redis")
	r.say("A client does a GET and a SET in turn, one every %s, while an owner of %s entries is swept. Latency counts from when the "+
		"request was due, if the one before it was still under way then.", neighbourPace, many(n))
	m := &mass{rig: r, n: n, ids: owners("dead", 1), total: n, beside: min(aside, n)}

	ways := []struct {
		name string
		kind kind
		run  func() cost
	}{
		{"nobody sweeps", floor, func() cost {
			return r.measure(1, func() { wait.For(r.t.Context(), min(2*time.Second, r.beat)) })
		}},
		{"SSCAN + HDEL by 500", peer, m.bare},
		{"HGETALL, HGET + HDEL by 500", peer, func() cost { return m.naive(batch) }},
		{"janitor, full share", ours, func() cost { return m.sharing(1) }},
		{"janitor, default share", ours, func() cost { return m.sharing(0) }},
	}
	p50s, p99s, mosts, longest := make([][]float64, len(ways)), make([][]float64, len(ways)), make([][]float64, len(ways)), make([][]float64, len(ways))
	rounds := min(r.rounds, 3)
	for range rounds {
		for i, w := range ways {
			c := r.beside(w.run)
			heard := c.heard
			require.NotEmpty(r.t, heard)
			p50s[i] = append(p50s[i], ms(quantile(heard, 0.5)))
			p99s[i] = append(p99s[i], ms(quantile(heard, 0.99)))
			mosts[i] = append(mosts[i], ms(quantile(heard, 1)))
			longest[i] = append(longest[i], ms(c.longest))
		}
	}
	var rows [][]string
	var bars []bar
	for i, w := range ways {
		rows = append(rows, []string{w.name, string(w.kind), digits(median(p50s[i])), digits(median(p99s[i])), digits(median(mosts[i])), digits(median(longest[i]))})
		bars = append(bars, bar{w.name, w.kind, median(p99s[i]), digits(median(p99s[i])) + " ms"})
	}
	r.table([]string{"meanwhile", "", "p50, ms", "p99, ms", "max, ms", "longest single call, ms"}, rows)
	r.plot("neighbour", "A neighbour's p99 during a sweep", barChart("A neighbour's p99 while "+many(n)+" entries are swept", "ms", barGroup{"", bars}))

	// Round by round, since the machine differs by round.
	for i, share := range map[int]string{3: "full", 4: "default"} {
		var over []float64
		for round := range rounds {
			over = append(over, p99s[i][round]-p99s[0][round]-longest[i][round])
		}
		r.promise(fmt.Sprintf("neighbour's p99 at %s share, less its idle p99 and the longest call, ms", share), "%.2f", median(over), 0)
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// latencies are sorted.
type latencies []time.Duration

// beside runs work with a neighbour there while it is measured.
func (r *rig) beside(work func() cost) cost {
	r.listening = true
	defer func() { r.listening = false }()
	return work()
}

// sharing is the janitor at a share of Redis' time; 0 is the default.
func (m *mass) sharing(share float64) cost {
	m.prepare(true)
	jan := m.replica("ingest-leader", func(_ *registry.Config, jc *janitor.Config) { jc.RedisShare = share }).leads()
	defer jan.stop()
	defer m.swept()
	return m.dying(jan)
}

// neighbourly begins to ask at a steady pace. What it returns ends that, and says how long answers took.
func (r *rig) neighbourly() (stop func() latencies) {
	o := r.srv.Options()
	o.PoolSize = 1
	rdb := redis.NewClient(o)
	require.NoError(r.t, rdb.Set(r.t.Context(), "neighbour", "0123456789", 0).Err())
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan latencies, 1)
	go func() {
		var took latencies
		due, before := time.Now(), time.Time{}
		for i := 0; ctx.Err() == nil; i++ {
			due = due.Add(neighbourPace)
			if rest := time.Until(due); rest > 0 {
				wait.For(ctx, rest)
			}
			begun := time.Now()
			if before.After(due) { // it is the answer before that was late, and not our timer
				begun = due
			}
			if i%2 == 0 {
				_ = rdb.Get(context.WithoutCancel(ctx), "neighbour").Err()
			} else {
				_ = rdb.Set(context.WithoutCancel(ctx), "neighbour", "0123456789", 0).Err()
			}
			before = time.Now()
			took = append(took, before.Sub(begun))
		}
		slices.Sort(took)
		done <- took
	}()
	return func() latencies {
		cancel()
		defer rdb.Close()
		return <-done
	}
}
