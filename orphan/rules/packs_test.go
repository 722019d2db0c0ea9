package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
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

// Whoever made a pack has weighed its rules. Beside others they are warned of like any rule.
func TestPacksThemselvesAreNotWarnedOf(t *testing.T) {
	t.Parallel()
	var all []Rule
	for _, name := range Packs() {
		text, _ := Pack(name)
		rules, err := Parse(text)
		require.NoError(t, err)
		require.Empty(t, Warnings(rules), name)
		all = append(all, rules...)
	}
	require.Empty(t, Warnings(all))
	require.Equal(t, packed(), all)
	changed := slices.Clone(all)
	changed[0].Grace *= 2
	require.NotEmpty(t, Warnings(changed))
}
