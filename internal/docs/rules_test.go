package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// What a reader pastes has to work. Rules with faults, that a page shows, stand in blocks without a
// language.
func TestRulesOnPagesAreRules(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	found := map[string]int{}
	for name, text := range pages(t) {
		for _, code := range block.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(code[1], "rules:\n") {
				continue
			}
			found[name]++
			parsed, err := rules.Parse([]byte(code[1]))
			require.NoError(t, err, name)
			require.NoError(t, rules.Validate(parsed, guard.Layout{Prefix: "{cleanup}:"}), name)
		}
	}
	require.Equal(t, 3, found["docs/orphans.md"])
	require.Equal(t, 2, found["docs/orphan-rules.md"])
}
