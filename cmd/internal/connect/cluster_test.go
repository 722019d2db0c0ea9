package connect

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

var quiet = slog.New(slog.DiscardHandler)

func TestAClusterIsNamedBySomeOfItsNodes(t *testing.T) {
	t.Parallel()
	var r Redis
	url := r.Table()[0].Value
	require.NoError(t, url("rediss://u:hunter2@a:1?addr=b:2&addr=c:3&read_timeout=4s&max_redirects=9&max_retries=5"))
	require.Equal(t, []string{"a:1", "b:2", "c:3"}, r.Cluster.Addrs)
	require.Equal(t, "Cluster a:1, b:2, c:3", r.String())
	c, err := Open(t.Context(), &r, 500*time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for _, client := range []redis.UniversalClient{c.Data, c.Control, c.Blocking} {
		o := client.(*redis.ClusterClient).Options()
		require.Zero(t, o.MaxRedirects) // none, after NewClusterClient has read it
		require.Equal(t, -1, o.MaxRetries)
		require.True(t, o.ContextTimeoutEnabled)
		require.Equal(t, 1, o.DialerRetries)
		require.NotNil(t, o.TLSConfig)
		require.Equal(t, "hunter2", o.Password)
	}
	require.Equal(t, 4*time.Second, c.Data.(*redis.ClusterClient).Options().ReadTimeout)
	require.Equal(t, blockingPool, c.Blocking.(*redis.ClusterClient).Options().PoolSize)
	require.Equal(t, 500*time.Millisecond, c.Control.(*redis.ClusterClient).Options().ReadTimeout)

	for _, bad := range []struct{ raw, says string }{
		{"redis://a:1/3?addr=b:2", "no database number but 0"},
		{"redis://a:1?addr=b:99999", "ports from 0 to 65535"},
		{"redis://a:1?addr=b:2&read_only=true", "none of read_only"},
		{"redis://a:1?addr=b:2&route_randomly=true", "none of read_only"},
		{"redis://a:1?addr=b:2&colour=red", "colour"},
		{"redis://u:hunter2@a:1?addr=hunter2", "withheld"},
	} {
		err := url(bad.raw)
		require.ErrorContains(t, err, bad.says, bad.raw)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestOneAddressIsEnoughWhereTheServerSaysThatItIsInACluster(t *testing.T) {
	t.Parallel()
	c, ctx := redistest.StartCluster(t, 2, 0), t.Context()
	var r Redis
	require.NoError(t, r.Table()[0].Value("redis://"+c.Nodes[0].Addr()+"/0?read_timeout=4s"))
	require.NotContains(t, r.String(), "Cluster", "before it was asked")
	clients, err := Open(ctx, &r, 500*time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, clients.Close()) })
	require.Equal(t, "Cluster "+c.Nodes[0].Addr(), clients.Server)
	require.Equal(t, clients.Server, r.String(), "as the settings know it from now on")
	require.Nil(t, r.Single)
	for _, key := range []string{"a", "b", "c", "d"} { // of both nodes
		for _, client := range []redis.UniversalClient{clients.Data, clients.Control, clients.Blocking} {
			require.NoError(t, client.Set(ctx, key, "x", 0).Err())
		}
	}
	require.Equal(t, 4*time.Second, clients.Data.(*redis.ClusterClient).Options().ReadTimeout)
	require.NoError(t, lease.CheckClient(clients.Control, time.Second))

	single := Redis{}
	require.NoError(t, single.Parse("redis://"+redistest.Shared(t).Addr()))
	clients, err = Open(ctx, &single, time.Second)
	require.NoError(t, err)
	require.NoError(t, clients.Close())
	require.Nil(t, single.Cluster)

	// What is silent, or away, is found out later, and delays nothing by more than two seconds.
	c.Nodes[1].Stop()
	defer c.Nodes[1].Cont()
	for _, addr := range []string{c.Nodes[1].Addr(), "127.0.0.1:1"} {
		var away Redis
		require.NoError(t, away.Parse("redis://"+addr))
		clients, err = Open(ctx, &away, time.Second)
		require.NoError(t, err)
		require.NoError(t, clients.Close())
		require.Nil(t, away.Cluster)
	}
}

// clientsOf are a program's clients that can use a Cluster.
func clientsOf(t *testing.T, url string) *Clients {
	t.Helper()
	var target Redis
	require.NoError(t, target.Parse(url))
	c, err := Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestTheInspectorSaysHowAClusterIsNamed(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	_, err := Inspect(t.Context(), clientsOf(t, "redis://"+c.Nodes[0].Addr()+"?db=0"), quiet)
	require.ErrorIs(t, err, errOneNode)
	require.ErrorContains(t, err, "redis://host:6379?addr=host2:6379")

	i, err := Inspect(t.Context(), clientsOf(t, c.URL()), quiet)
	require.NoError(t, err)
	require.Empty(t, i.Status(true).Warnings)
	require.Empty(t, i.Status(true).ChecksOff)

	ctx := t.Context()
	require.NoError(t, c.Nodes[1].Client().ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	require.NoError(t, c.Nodes[1].Client().ConfigSet(ctx, "maxmemory", "100mb").Err())
	_, err = i.ask(ctx)
	require.NoError(t, err)
	require.Len(t, i.Status(true).Warnings, 1)
	require.Contains(t, i.Status(true).Warnings[0], c.Nodes[1].Addr()+": maxmemory-policy is allkeys-lru")

	single := redistest.Shared(t).Addr()
	_, err = Inspect(ctx, clientsOf(t, "redis://"+single+"?addr="+single), quiet)
	require.ErrorIs(t, err, errNoCluster)
}

// left is a sweep that deletes the keys <prefix>left:<owner> of the dead.
type left struct{ cluster *redis.ClusterClient }

func (left) Name() string            { return "left" }
func (left) Interval() time.Duration { return time.Hour }

var deleteKeys = guard.NewBody(`
local found = {}
for i = 8, #ARGV do
  if redis.call('EXISTS', KEYS[i - 2]) == 1 then found[#found + 1] = KEYS[i - 2] end
end
local refused = record(#found, 0, 'keys', found)
if refused then return refused end
if #found > 0 then redis.call('UNLINK', unpack(found)) end
return answer('DONE', #found, 0)
`)

func (s left) Run(ctx context.Context, p *janitor.Pass) error {
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	prefix := p.Layout().Prefix + "left:"
	home, err := s.cluster.MasterForKey(ctx, prefix)
	if err != nil {
		return err
	}
	keys, err := home.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	p.AddScanned(len(keys))
	for _, key := range keys {
		owner := key[len(prefix):]
		liveness, err := p.Liveness(ctx, []string{owner})
		if err != nil {
			return err
		}
		if liveness[owner] == janitor.Dead {
			key := []string{key}
			if _, err := p.Delete(ctx, janitor.Batch{Owner: owner, Body: deleteKeys, Keys: key, Items: key}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A leader on a Cluster, with the clients of a program: it wins, ticks, deletes through the guard,
// and is held when another server leads in the place of its own.
func TestLeaseWitnessAndGuardHoldOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	ctx, layout := t.Context(), guard.Layout{Prefix: "{cleanup}:"}
	clients, look := clientsOf(t, c.URL()), c.Client()
	timing := guard.Timing{Interval: time.Second, TTL: 6 * time.Second}
	reg, err := registry.New(registry.Config{
		Client: clients.Data, Control: clients.Control, Instance: "cleanup-1", Layout: layout, Logger: quiet,
		HeartbeatInterval: timing.Interval, HeartbeatTTL: timing.TTL,
	})
	require.NoError(t, err)
	jan, err := janitor.New(janitor.Config{
		Client: clients.Data, Control: clients.Control, Registry: reg, LeaseTTL: 5 * time.Second,
		Sweeps: []janitor.Sweeper{left{clients.Data.(*redis.ClusterClient)}}, Logger: quiet,
	})
	require.NoError(t, err)

	// It has been listened to for an hour.
	w, err := guard.New(look, look, layout, timing, "nobody").Tick(ctx)
	require.NoError(t, err)
	require.NoError(t, look.HSet(ctx, layout.Witness(), "since", w.Now.Add(-time.Hour).UnixMilli()).Err())

	life, stop := context.WithCancel(ctx)
	replica := pool.New().WithContext(life).WithCancelOnError()
	replica.Go(reg.Run)
	replica.Go(jan.Run)
	// pass asks for passes until f holds. One may fail while the client does not know the new master.
	pass := func(f func() bool) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ; !f(); <-tick.C {
			require.NoError(t, ctx.Err())
			_, err := jan.Sweep(ctx, janitor.Request{})
			if _, not := errors.AsType[*janitor.NotLeaderError](err); !not {
				require.NoError(t, err)
			}
		}
	}

	dead, lives, other := layout.Prefix+"left:dead", layout.Prefix+"left:cleanup-1", "left:dead"
	for _, key := range []string{dead, lives, other} {
		require.NoError(t, look.Set(ctx, key, "x", 0).Err())
	}
	gone := func() bool {
		n, err := look.Exists(ctx, dead).Result()
		return err == nil && n == 0
	}
	pass(gone)
	require.Equal(t, "1", look.HGet(ctx, layout.Witness(), "evicted_total").Val())

	home := c.Owner(layout.Lease())
	require.NoError(t, home.Client().Wait(ctx, 1, time.Minute).Err())
	before := jan.Status().Witness.LastHold
	for i, n := range c.Nodes[:3] {
		if n == home {
			c.TakeOver(c.Nodes[i+3])
		}
	}
	home.Kill()
	soon := func(f func() bool) { require.Eventually(t, f, time.Minute, 10*time.Millisecond) }
	soon(func() bool { return look.Set(ctx, dead, "x", 0).Err() == nil })
	soon(func() bool { return jan.Status().Witness.LastHold.After(before) })
	t.Log("held:", jan.Status().Witness.Reason)
	require.Equal(t, int64(1), look.Exists(ctx, dead).Val(), "held")
	pass(gone)
	require.Equal(t, "2", look.HGet(ctx, layout.Witness(), "evicted_total").Val())

	require.Equal(t, int64(1), look.Exists(ctx, lives).Val())
	require.Equal(t, int64(1), look.Exists(ctx, other).Val())
	stop()
	require.NoError(t, replica.Wait())
}
