package connect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
