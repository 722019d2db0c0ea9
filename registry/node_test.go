package registry

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

var update = flag.Bool("update", false, "write the scripts of clients/node")

// The owner in clients/node runs the scripts of this package.
func TestTheNodeClientHasTheseScripts(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"boot": guard.SettingsLua + lua("boot"), "beat": guard.SettingsLua + lua("owner") + lua("beat"),
		"extend": lua("owner") + lua("extend"), "register": lua("owner") + lua("register"),
		"heal": guard.ListenLua + lua("owner") + lua("heal"), "release": lua("owner") + lua("release"),
		"goodbye": lua("owner") + lua("goodbye"), "lookup": lua("lookup"), "same": lua("same"),
	} {
		file := "../clients/node/lua/" + name + ".lua"
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(have), "%s is out of date; renew it by: go test ./registry/ -run Node -update", file)
	}
}
