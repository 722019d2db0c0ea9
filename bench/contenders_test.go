package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// contenders is what many replicas cost that hold nothing: beats, ticks, and looks at the lease.
func contenders(r *rig) {
	n := r.contenders
	watched := max(r.beat, time.Second)
	if *sizeFlag != smoke {
		// they started together: each is to beat once
		watched = max(watched, registry.DefaultHeartbeatInterval)
	}
	r.section("Contenders: idle replicas")
	r.say("%d replicas without a device, one of which leads, at the default intervals, watched for %s (the others for half of that). The floor looks at the lease every TTL/5; the peer "+
		"tries to take it as a lock without a look does: a SET NX, and a script that takes its own value back.", n, watched)

	release := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	asking := func(ask func(ctx context.Context, i int)) cost {
		r.clear()
		require.NoError(r.t, r.rdb.Set(r.t.Context(), "lease", "somebody", time.Hour).Err())
		return r.measure(n, func() { r.crowd(n, max(watched/2, time.Second), ask) })
	}
	ways := []struct {
		name string
		kind kind
		c    cost
	}{
		{"GET of the lease every 3 s", floor, asking(func(ctx context.Context, _ int) { _ = r.rdb.Get(ctx, "lease").Err() })},
		{"SET NX and a script every 3 s", peer, asking(func(ctx context.Context, i int) {
			_ = r.rdb.SetArgs(ctx, "lease", i, redis.SetArgs{Mode: "NX", TTL: 15 * time.Second}).Err()
			_ = release.Run(ctx, r.rdb, []string{"lease"}, i).Err()
		})},
		{"registry and janitor", ours, r.idlers(n, watched)},
	}
	var rows [][]string
	var bars []bar
	for _, w := range ways {
		s := w.c.wall.Seconds()
		rate := float64(w.c.commands) / s
		rows = append(rows, []string{
			w.name, string(w.kind), digits(rate), digits(float64(w.c.in) / s), digits(float64(w.c.out) / s),
			fmt.Sprintf("%.3f %%", 100*w.c.cpu.Seconds()/s),
		})
		bars = append(bars, bar{w.name, w.kind, rate, digits(rate)})
	}
	r.table([]string{"way", "", "commands/s", "bytes/s in", "bytes/s out", "Redis CPU, of a core"}, rows)
	r.say("Where ours went: %s. A script's own commands count too.", ways[2].c.dearest())
	r.plot("contenders", "Commands of idle replicas", barChart(fmt.Sprintf("%d idle replicas", n), "commands/s", barGroup{"", bars}))
}

// crowd has n askers ask every 3 s, each at its own phase.
func (r *rig) crowd(n int, d time.Duration, ask func(ctx context.Context, i int)) {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	const every = 3 * time.Second
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ok := wait.For(ctx, every*time.Duration(i)/time.Duration(n)); ok; ok = wait.For(ctx, every) {
				ask(ctx, i)
			}
		})
	}
	wg.Wait()
}

// idlers runs n of ours.
func (r *rig) idlers(n int, d time.Duration) cost {
	r.clear()
	r.warm()
	fleet := make([]*replica, n)
	for i := range fleet {
		fleet[i] = r.start(madeUp, nil, i == 0)
		if i == 0 {
			fleet[0].leads()
		}
	}
	r.until(func() bool { return r.subscribers() == n })
	r.rest(min(d, 10*time.Second)) // each has ticked, and knows how many they are
	c := r.measure(n, func() { r.rest(d) })
	stopAll(fleet)
	return c
}
