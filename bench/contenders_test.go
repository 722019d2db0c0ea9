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
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// asked is the fleet that the targets of idle replicas are about.
	asked = 100
	// divisions is how many partitions a divided registry has here.
	divisions = 16
)

// idleWay is one row of the table of idle replicas.
type idleWay struct {
	name string
	kind kind
	c    cost
}

func (w idleWay) cpu() float64 { return 100 * w.c.cpu.Seconds() / w.c.wall.Seconds() }

// contenders is the cost of replicas that hold nothing: beats, ticks, and looks at the leases.
func contenders(r *rig) {
	watched := r.watched
	r.section("Contenders: idle replicas")
	r.say("Replicas without a device contend at the default intervals on one server. All run in the measuring process, and each has its "+
		"own clients. Ours is watched for %s, the others for half of that. The floor looks at one lease every TTL/5; the peer tries to "+
		"take it as a lock without a look does: a SET NX, and a script that takes its own value back. A script's own commands count too.", watched)

	var rows [][]string
	for _, n := range r.contenders {
		one, divided := r.divided(n, 1, watched), r.divided(n, divisions, watched)
		ways := []idleWay{r.looking(n, watched/2), r.locking(n, watched/2), one, divided}
		for _, w := range ways {
			s := w.c.wall.Seconds()
			rows = append(rows, []string{
				fmt.Sprint(n), w.name, string(w.kind), digits(float64(w.c.commands) / s), digits(float64(w.c.in) / s),
				digits(float64(w.c.out) / s), fmt.Sprintf("%.3f %%", w.cpu()),
			})
		}
		r.say("Most of the time of %d replicas went, %s: %s; %s: %s.", n, one.name, one.c.dearest(), divided.name, divided.c.dearest())
		if n == asked {
			r.promise(fmt.Sprintf("%d idle replicas, %d partitions: Redis CPU, %% of a core", n, divisions), "%.2f", divided.cpu(), 0.5)
			r.promise(fmt.Sprintf("%d idle replicas, %d partitions: × the CPU of one partition", n, divisions), "%.2f",
				divided.cpu()/max(1e-6, one.cpu()), 4)
		}
	}
	r.table([]string{"replicas", "way", "", "commands/s", "bytes/s in", "bytes/s out", "Redis CPU, of a core"}, rows)
}

// looking is the floor: n askers read one lease.
func (r *rig) looking(n int, d time.Duration) idleWay {
	c := r.crowd(n, d, func(ctx context.Context, _ int) { _ = r.rdb.Get(ctx, "lease").Err() })
	return idleWay{name: "GET of the lease every 3 s", kind: floor, c: c}
}

// locking is the peer: n askers try to take one lease.
func (r *rig) locking(n int, d time.Duration) idleWay {
	release := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	c := r.crowd(n, d, func(ctx context.Context, i int) {
		_ = r.rdb.SetArgs(ctx, "lease", i, redis.SetArgs{Mode: "NX", TTL: 15 * time.Second}).Err()
		_ = release.Run(ctx, r.rdb, []string{"lease"}, i).Err()
	})
	return idleWay{name: "SET NX and a script every 3 s", kind: peer, c: c}
}

// crowd has n askers ask every 3 s, each at its own phase.
func (r *rig) crowd(n int, d time.Duration, ask func(ctx context.Context, i int)) cost {
	r.clear()
	require.NoError(r.t, r.rdb.Set(r.t.Context(), "lease", "somebody", time.Hour).Err())
	if *sizeFlag == smoke {
		d = 50 * time.Millisecond
	}
	const every = 3 * time.Second
	return r.measure(n, func() {
		ctx, cancel := context.WithTimeout(r.t.Context(), d)
		defer cancel()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for ok := wait.For(ctx, every*time.Duration(i)/time.Duration(n)); ok; ok = wait.For(ctx, every) {
					ask(ctx, i)
				}
			})
		}
		wg.Wait()
	})
}

// divided runs n replicas of a registry in so many partitions, and measures once the leases are
// spread evenly.
func (r *rig) divided(n, partitions int, d time.Duration) idleWay {
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
	r.rest(d) // by default every replica has read by then who contends
	name := "one partition"
	if partitions > 1 {
		name = fmt.Sprintf("%d partitions", partitions)
	}
	return idleWay{name: name, kind: ours, c: r.measure(n, func() { r.rest(d) })}
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
		require.NoError(r.t, err)
		jan, err := partition.NewJanitor(janitor.Config{Client: client, Control: control, Logger: quiet}, reg)
		require.NoError(r.t, err)
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
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return all, stop
}
