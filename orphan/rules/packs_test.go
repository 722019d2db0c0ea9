package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

func TestPacksAreWithoutFaultAndFitTogether(t *testing.T) {
	var all []Rule
	for _, name := range Packs() {
		text, _ := Pack(name)
		require.NoError(t, valid(t, text), name)
		for _, head := range []string{"Pack " + name + ": ", "Leaks: ", "Tried: ", "Reports: ", "Never touches: "} {
			require.Contains(t, "\n"+string(text), "\n# "+head, name)
		}
		rules, err := Parse(text)
		require.NoError(t, err)
		for _, r := range rules {
			if name != "colyseus" { // older than packs, and has the names and bins that its users know
				require.True(t, strings.HasPrefix(r.Name, name+"-"), r.Name)
				require.True(t, r.Delete && r.Bin > 0, r.Name)
			}
			all = append(all, r)
		}
	}
	require.NoError(t, Validate(all, guard.Layout{Prefix: "{cleanup}:"}))
}

// What a copy would be warned of, the pack is warned of, too: of spring-session nothing tells that
// sessions were lost.
func TestPacksAreWarnedOfAsTheirCopiesAre(t *testing.T) {
	t.Parallel()
	for _, name := range Packs() {
		text, _ := Pack(name)
		rules, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, name == "spring-session", len(Warnings(rules)) > 0, "%s: %v", name, Warnings(rules))
	}
}
