package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestRoomForFramesFollowsThePools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ shared, active, own, want int }{
		{20, 0, 0, redis.DefaultPipelinePoolSize + 10},
		{20, 0, 5, 15},
		{20, 8, 5, 9},
		{20, 0, -1, 10},
		{1, 0, -1, 1},
	} {
		client := redis.NewClient(&redis.Options{PoolSize: c.shared, MaxActiveConns: c.active, PipelinePoolSize: c.own})
		require.Equal(t, c.want, underWay(client), "%+v", c)
		require.NoError(t, client.Close())
	}
}

func TestFramesUnderWayLeaveConnectionsForOthers(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]byte{"records": frame(1), "dead letters": junk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			const size = 4             // of the pool that is shared
			var now, most atomic.Int64 // pipelines that write
			b := setup(t, server, func(c *Config) {
				o := *c.Client.(*redis.Client).Options()
				o.PoolSize = size
				client := redis.NewClient(&o)
				client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
					if cmds[0].Name() == "xadd" || len(cmds) > 1 && cmds[1].Name() == "xadd" { // after MULTI
						most.Store(max(most.Load(), now.Add(1)))
						defer now.Add(-1)
					}
					return send()
				}))
				t.Cleanup(func() { _ = client.Close() })
				c.Client, c.Streams = client, 4 // one server has all of them
			})
			client := b.store.client.(*redis.Client)
			const sockets = 60
			var all []*wire
			for i := range sockets {
				all = append(all, b.login(t, fmt.Sprintf("35%013d", i)))
			}
			// Writes are not answered, reads are.
			require.NoError(t, b.rdb.Do(t.Context(), "CLIENT", "PAUSE", "60000", "WRITE").Err())
			for _, w := range all {
				w.send(sent)
			}
			for _, c := range b.registrar.all() {
				await(t, func() bool { n, _ := c.counts(); return n == 1 })
			}
			room := redis.DefaultPipelinePoolSize + size/2
			await(t, func() bool { return now.Load() == int64(room) })
			// Like the authority and the registry.
			require.NoError(t, client.SMIsMember(t.Context(), b.stream+"set", imei).Err())
			_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Exists(t.Context(), b.stream).Err() })
			require.NoError(t, err)
			stats := client.PoolStats()
			require.Zero(t, stats.WaitCount, "nobody has waited for a connection")
			require.LessOrEqual(t, stats.TotalConns, uint32(size/2+1))

			require.NoError(t, b.rdb.Do(t.Context(), "CLIENT", "UNPAUSE").Err())
			for _, w := range all { // those that waited are stored too
				w.expect("00000001")
			}
			require.EqualValues(t, room, most.Load())
		})
	}
}
