package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestControlClientsAreSafeForEverySettingThatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1:1", "redis://127.0.0.1:1?read_timeout=1h&pool_size=900&max_retries=9", "redis://127.0.0.1:1?master_name=m&read_timeout=1h&max_retries=9"} {
		for _, args := range [][]string{
			nil,
			{"--heartbeat-interval=50ms", "--heartbeat-ttl=150ms"},
			{"--janitor-lease-ttl=300ms"},
			{"--heartbeat-interval=10s", "--heartbeat-ttl=30s"},
		} {
			s, err := settings.Load(append(args, "--redis-url="+url), nil)
			require.NoError(t, err)
			c, err := connect(s)
			require.NoError(t, err)
			require.NoError(t, lease.CheckClient(c.control, s.JanitorLeaseTTL/3))
			require.NoError(t, lease.CheckClient(c.control, s.HeartbeatInterval))
			require.NoError(t, lease.CheckClient(c.control, (s.HeartbeatTTL-s.HeartbeatInterval)/4))
			require.Equal(t, 4, c.control.Options().PoolSize)
			require.Zero(t, c.data.Options().MaxRetries)
			require.True(t, c.data.Options().ContextTimeoutEnabled)
			require.NoError(t, c.close())
		}
	}
}

func TestTheLeastShareIsTheJanitors(t *testing.T) {
	t.Parallel()
	_, err := settings.Load([]string{"--redis-url=embedded", fmt.Sprint("--janitor-redis-share=", janitor.LeastShare)}, nil)
	require.NoError(t, err)
	_, err = settings.Load([]string{"--redis-url=embedded", fmt.Sprint("--janitor-redis-share=", janitor.LeastShare*0.99)}, nil)
	require.ErrorContains(t, err, fmt.Sprint("from ", janitor.LeastShare, " to 1"))
}

func TestWhatIsWrongWithAServerIsNamed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, info string
		warnings   []string
		off        int
	}{
		{"all is well", "run_id:x\r\nevicted_keys:0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n", nil, 0},
		{"a policy that evicts, but no limit", "run_id:x\r\nevicted_keys:0\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", nil, 0},
		{"a limit and a policy that evicts", "run_id:x\r\nevicted_keys:0\r\nmaxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", []string{"maxmemory-policy is allkeys-lru"}, 0},
		{"a replica", "run_id:x\r\nevicted_keys:0\r\nmaxmemory_policy:noeviction\r\nrole:slave\r\n", []string{"this Redis is a replica"}, 0},
		{"a server that says little", "# Clients\r\nconnected_clients:1\r\n", nil, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			warnings, off := judge(parseInfo(tt.info))
			require.Len(t, warnings, len(tt.warnings))
			for i, want := range tt.warnings {
				require.Contains(t, warnings[i], want)
			}
			require.Len(t, off, tt.off)
		})
	}
}
