package inspect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAnAddressIsHostAndPortOfAReplicaAndNoMore(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := New(w.Client, guard.Layout{Prefix: w.Prefix})
		for address, want := range map[string]string{
			"10.0.0.7:8080": "10.0.0.7:8080", "[fd00::7]:8080": "[fd00::7]:8080", "host-1.svc:80": "host-1.svc:80",
			"": "", ":8080": "", "0.0.0.0:8080": "", "[::]:8080": "", "javascript:alert(1)": "", "a/b:80": "",
			"a@b:80": "", "a:80/latest/meta-data?": "", "a:80?": "", "a:80#": "", "a:80\n": "",
			strings.Repeat("a", 254) + ":80": "",
		} {
			text, err := json.Marshal(About{Boot: "b", Version: strings.Repeat("v", 1000), Address: address})
			require.NoError(t, err)
			require.NoError(t, w.Client.Set(t.Context(), r.keys.About("one"), text, 0).Err())
			all, err := r.Abouts(t.Context(), []string{"one"})
			require.NoError(t, err)
			require.Equal(t, want, all["one"].Address, address)
			require.Less(t, len(all["one"].Version), 100)
		}
	})
}
