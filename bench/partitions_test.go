package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

// partitions is what a registry in 16 partitions costs on one server while nothing happens, beside
// one in one partition.
func partitions(r *rig) {
	watched := 2 * registry.DefaultHeartbeatInterval
	if *sizeFlag == smoke {
		watched = 2 * time.Second
	}
	n := min(100, r.replicas)
	r.section("Partitions: idle replicas")
	r.say("%d replicas without a device at the default intervals on one server, watched for %s. A script's own commands count too.", n, watched)
	one, many := r.divided(n, 1, watched), r.divided(n, 16, watched)
	var rows [][]string
	for _, w := range []struct {
		name string
		c    cost
	}{{"one partition", one}, {"16 partitions", many}} {
		s := w.c.wall.Seconds()
		rows = append(rows, []string{
			w.name, string(ours), digits(float64(w.c.commands) / s), digits(float64(w.c.in) / s), digits(float64(w.c.out) / s),
			fmt.Sprintf("%.3f %%", 100*w.c.cpu.Seconds()/s), w.c.dearest(),
		})
	}
	r.table([]string{"", "", "commands/s", "bytes/s in", "bytes/s out", "Redis CPU, of a core", "where it went"}, rows)
	r.promise("16 partitions while idle: × the CPU of one", "%.2f", many.cpu.Seconds()/max(1e-6, one.cpu.Seconds()), 3)
	r.promise("16 partitions while idle: × the commands of one", "%.2f", float64(many.commands)/float64(max(1, one.commands)), 3)
}

// divided runs n replicas of a registry in so many partitions, and measures when leases lie evenly.
func (r *rig) divided(n, partitions int, d time.Duration) cost {
	r.clear()
	defer func(keys registry.Layout) { r.keys, r.partitions = keys, 0 }(r.keys)
	r.keys, r.partitions = guard.Layout{Prefix: "{rollcall}:"}, partitions
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithCancel(context.Background())
	var (
		all   []*partition.Janitor
		close []func() error
	)
	p := pool.New().WithContext(ctx)
	for range n {
		client, control := r.connect()
		close = append(close, client.Close, control.Close)
		reg, err := partition.NewRegistry(registry.Config{
			Client: client, Control: control, Layout: r.keys, Drain: time.Millisecond, Logger: quiet,
		}, partitions)
		require.NoError(r.t, err)
		jan, err := partition.NewJanitor(janitor.Config{Client: client, Control: control, Logger: quiet}, reg)
		require.NoError(r.t, err)
		all = append(all, jan)
		p.Go(reg.Run)
		p.Go(jan.Run)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		err := p.Wait()
		for _, f := range close {
			err = errors.Join(err, f())
		}
		require.NoError(r.t, err)
	})
	defer stop()
	r.until(func() bool {
		led := 0
		for _, j := range all {
			leads := len(j.Leads())
			led += leads
			if *sizeFlag != smoke && leads > partitions/n+2 {
				return false
			}
		}
		return led == partitions
	})
	r.rest(registry.DefaultHeartbeatInterval) // each knows by now who contends
	return r.measure(n, func() { r.rest(d) })
}
