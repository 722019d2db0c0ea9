package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = 2 * time.Minute

// replica is a replica in this process, with its own clients.
type replica struct {
	t        *testing.T
	registry *partition.Registry
	janitor  *partition.Janitor
	metrics  *prometheus.Registry
	stop     func() // in good order
	kill     func() // no goodbye: its clients reach nobody any more
	ended    chan error
}

// start starts a replica that beats every 200 ms and is dead after a second and a half.
func start(t *testing.T, client func() redis.UniversalClient, partitions int, id string) *replica {
	t.Helper()
	data, control := client(), client()
	r := &replica{t: t, metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	log := slog.New(slog.DiscardHandler)
	var err error
	r.registry, err = partition.NewRegistry(registry.Config{
		Client: data, Control: control, Instance: id, Unique: true, Layout: registry.Layout{Prefix: "{rollcall}:"},
		HeartbeatInterval: 200 * time.Millisecond, HeartbeatTTL: 1500 * time.Millisecond,
		Drain:  50 * time.Millisecond,
		Logger: log, Registerer: r.metrics,
	}, partitions)
	require.NoError(t, err)
	r.janitor, err = partition.NewJanitor(janitor.Config{
		Client: data, Control: control, Interval: time.Second, LeaseTTL: time.Second,
		Logger: log, Registerer: r.metrics,
	}, r.registry)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { r.ended <- r.registry.Run(ctx) })
	work.Go(func() { _ = r.janitor.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		_, _ = data.Close(), control.Close()
	})
	r.kill = func() {
		_, _ = data.Close(), control.Close()
		r.stop()
	}
	t.Cleanup(r.stop)
	return r
}

func on(o *redis.Options) func() redis.UniversalClient {
	return func() redis.UniversalClient { return redis.NewClient(short(lease.Options(o))) }
}

func onCluster(c *redistest.Cluster) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		o := lease.ClusterOptions(c.Options())
		s := short(&redis.Options{})
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = s.DialTimeout, s.ReadTimeout, s.WriteTimeout, s.PoolTimeout
		return redis.NewClusterClient(o)
	}
}

// short sets deadlines for a beat of 200 ms.
func short(o *redis.Options) *redis.Options {
	const d = 150 * time.Millisecond
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = d, d, d, d
	return o
}

// nobody is a socket that nobody minds.
var nobody = registry.Socket{Close: func() error { return nil }}

// claims registers n devices, and waits until all have landed.
func (r *replica) claims(from, n int) (claims []*registry.Claim) {
	r.t.Helper()
	for i := range n {
		claims = append(claims, r.registry.Register(imei(from+i), nobody))
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for _, c := range claims {
		require.NoError(r.t, c.Wait(ctx))
	}
	return claims
}

func imei(i int) string { return fmt.Sprintf("35%013d", i) }

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	waittest.Until(t, 10*time.Millisecond, cond)
}
