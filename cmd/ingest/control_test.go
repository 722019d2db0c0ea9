package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestControlClientsAreSafeForEverySettingThatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		nil,
		{"--heartbeat-interval=50ms", "--heartbeat-ttl=150ms"},
		{"--janitor-lease-ttl=300ms"},
		{"--heartbeat-interval=10s", "--heartbeat-ttl=30s"},
	} {
		const url = "--redis-url=redis://127.0.0.1:1?read_timeout=1h&pool_size=900&max_retries=9"
		s, _, err := loaded(append(args, url), nil)
		require.NoError(t, err)
		c, err := connect.Open(t.Context(), &s.Redis, s.ControlDeadline())
		require.NoError(t, err)
		require.NoError(t, lease.CheckClient(c.Control, s.LeaseTTL/3))
		require.NoError(t, lease.CheckClient(c.Control, s.HeartbeatInterval))
		require.NoError(t, lease.CheckClient(c.Control, (s.HeartbeatTTL-s.HeartbeatInterval)/4))
		require.Equal(t, 4, c.Control.(*redis.Client).Options().PoolSize)
		require.NoError(t, c.Close())
	}
}
