package registry

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "copy the scripts to clients/node")

// The owner in clients/node runs the scripts of this package and of package guard.
func TestTheNodeClientHasTheseScripts(t *testing.T) {
	t.Parallel()
	for folder, names := range map[string][]string{
		".":                 {"record", "owner", "boot", "beat", "here", "register", "heal", "release", "goodbye", "lookup"},
		"../internal/guard": {"settings", "former"},
	} {
		for _, name := range names {
			text, err := os.ReadFile(folder + "/" + name + ".lua")
			require.NoError(t, err)
			copied := "../clients/node/lua/" + name + ".lua"
			if *update {
				require.NoError(t, os.WriteFile(copied, text, 0o644))
			}
			have, err := os.ReadFile(copied)
			require.NoError(t, err)
			require.Equal(t, string(text), string(have), "%s is out of date; renew it by: go test ./registry/ -run Node -update", copied)
		}
	}
}
