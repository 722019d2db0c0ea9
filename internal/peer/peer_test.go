package peer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANetworkIsWhatOneHostMayChooseFrom(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7:4000":               "192.0.2.7/32",
		"[::ffff:192.0.2.7]:4000":      "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:80":    "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":            "fe80::/64",
		"[2001:db8:1:2:ffff:ffff::]:1": "2001:db8:1:2::/64",
		"@":                            "invalid Prefix", "pipe": "invalid Prefix", "": "invalid Prefix",
	} {
		require.Equal(t, want, Network(addr).String(), addr)
	}
}
