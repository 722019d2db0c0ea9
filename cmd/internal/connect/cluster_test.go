package connect

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

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
		require.Equal(t, 500*time.Millisecond, o.ClusterStateReloadInterval)
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

func TestAClusterThatIsNamedWronglyIsRefused(t *testing.T) {
	t.Parallel()
	c, single := redistest.StartCluster(t, 2, 0), redistest.Shared(t).Addr()
	for url, want := range map[string]error{
		"redis://" + c.Nodes[0].Addr() + "?db=0": errOneNode, c.URL(): nil, "redis://" + single: nil,
		"redis://" + single + "?addr=" + single: errNoCluster,
	} {
		known, err := clientsOf(t, url).Check(t.Context())
		require.ErrorIs(t, err, want, url)
		require.True(t, known, url)
		require.ErrorIs(t, clientsOf(t, url).Watch(t.Context()), want, url)
	}
	known, err := clientsOf(t, "redis://127.0.0.1:1").Check(t.Context())
	require.NoError(t, err)
	require.False(t, known)
}
