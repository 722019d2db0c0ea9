package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// divisions is how many partitions a divided registry has here.
const divisions = 16

// contenders is the cost of replicas that hold nothing: beats, ticks, and looks at the leases.
func contenders(r *rig) {
	n := r.contenders
	r.section("Contenders: idle replicas")
	r.say("%d replicas without a device contend at the default intervals on one server, and are watched for %s. All run in the "+
		"measuring process, and each has its own clients.", n, r.watched)
	var rows [][]string
	var cpu []float64
	for _, partitions := range []int{1, divisions} {
		c := r.divided(n, partitions)
		s := c.wall.Seconds()
		cpu = append(cpu, 100*c.cpu.Seconds()/s)
		rows = append(rows, []string{
			fmt.Sprint(partitions), digits(float64(c.commands) / s), digits(float64(c.in) / s),
			digits(float64(c.out) / s), fmt.Sprintf("%.3f %%", cpu[len(cpu)-1]), c.dearest(),
		})
	}
	r.table([]string{"partitions", "commands/s", "bytes/s in", "bytes/s out", "Redis CPU, of a core", "most of it"}, rows)
	r.promise("an idle replica, one partition: Redis CPU, % of a core", "%.4f", cpu[0]/float64(n), 0.005)
}

// divided runs n replicas of a registry in so many partitions, and measures once the leases are
// spread evenly.
func (r *rig) divided(n, partitions int) cost {
	r.clear()
	defer func(keys registry.Layout) { r.keys, r.partitions = keys, 0 }(r.keys)
	r.keys, r.partitions = guard.Layout{Prefix: "{rollcall}:"}, partitions
	all, stop := r.idlers(n, partitions)
	defer stop()
	r.until(func() bool {
		led := 0
		for _, j := range all {
			leads := len(j.Leads())
			led += leads
			// Leases are given up after a TTL of heartbeats.
			if r.watched >= registry.DefaultHeartbeatInterval && leads > partitions/n+2 {
				return false
			}
		}
		return led == partitions
	})
	r.rest(r.watched) // by default every replica has read by then who contends
	return r.measure(n, func() { r.rest(r.watched) })
}

// idlers starts n replicas, each with clients of its own. They start at once, and would open more
// connections than one process may have files.
func (r *rig) idlers(n, partitions int) (all []*partition.Janitor, stop func()) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithCancel(context.Background())
	p := pool.New().WithContext(ctx)
	var closing []func() error
	for range n {
		o := r.srv.Options()
		o.PoolSize = 4
		client, control := redis.NewClient(o), redis.NewClient(lease.Options(r.srv.Options()))
		closing = append(closing, client.Close, control.Close)
		reg, err := partition.NewRegistry(registry.Config{
			Client: client, Control: control, Layout: r.keys, Drain: time.Millisecond, Logger: quiet,
		}, partitions)
		require.NoError(r, err)
		jan, err := partition.NewJanitor(janitor.Config{Client: client, Control: control, Logger: quiet}, reg)
		require.NoError(r, err)
		all = append(all, jan)
		p.Go(reg.Run)
		p.Go(jan.Run)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		err := p.Wait()
		for _, f := range closing {
			err = errors.Join(err, f())
		}
		if err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return all, stop
}
