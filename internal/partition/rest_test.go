package partition

import (
	"cmp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAFleetAtRestSendsThisMuchAMinute(t *testing.T) {
	const replicas, partitions, minutes = 5, 8, 4
	inBubble(t, partitions, func(f *crew) {
		f.start("gw", replicas, true)
		sent := func() (n float64) {
			for _, m := range f.all {
				n += float64(m.sent.Load())
			}
			return n
		}
		time.Sleep(2 * time.Minute)
		require.Equal(f, partitions, f.led())
		before := sent()
		time.Sleep(minutes * time.Minute)
		// A replica: two pipelines of beats, two readings of a roster in two trips each, the number
		// of partitions. A partition: 10 + 2 x 6 ticks, 12 renewals, 2 x 5 reads of the lease by
		// each of the first, 7 readings, and a full scan of next to nothing.
		got := (sent() - before) / minutes
		require.Less(f, got, float64(replicas*(2+4+1)+partitions*(10+12+12+10+5+7+20)))
		require.Greater(f, got, float64(partitions*(10+12)), "it has been counted")
	})
}

func TestAllPartitionsTogetherTakeTheShareThatIsSet(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(lease.Options(&redis.Options{Addr: "127.0.0.1:1"}))
	cluster := redis.NewClusterClient(lease.ClusterOptions(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	t.Cleanup(func() { _, _ = client.Close(), cluster.Close() })
	for name, c := range map[string]struct {
		on         redis.UniversalClient
		partitions int
		set, each  float64
	}{
		"one":                        {client, 1, 0.25, 0.25},
		"many on one server":         {client, 16, 0.02, 0.02 / 16},
		"many on three":              {cluster, 1024, 0, 0.25 * 3 / 1024},
		"as many as masters":         {cluster, 2, 0.25, 0.25},
		"the least that may be set":  {client, 4, janitor.LeastShare, janitor.LeastShare / 4},
		"less":                       {client, 4, janitor.LeastShare / 2, 0},
		"what would be fine divided": {cluster, 16, 5, 0},
		"a negative one":             {client, 4, -1, 0},
	} {
		reg, err := NewRegistry(registry.Config{
			Client: c.on, Control: c.on, Layout: registry.Layout{Prefix: "{rollcall}:"},
		}, c.partitions)
		require.NoError(t, err, name)
		_, err = NewJanitor(janitor.Config{Client: c.on, Control: c.on, RedisShare: c.set}, reg)
		if c.each == 0 {
			require.ErrorContains(t, err, "RedisShare is", name)
			continue
		}
		require.NoError(t, err, name)
		all := cmp.Or(c.set, janitor.DefaultRedisShare)
		require.InDelta(t, c.each, share(all, c.on, c.partitions), 1e-9, name)
	}
}
