package model_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update writes the page instead of comparing it.
var update = flag.Bool("update", false, "write rules.txt")

// page lists what is made from the models and the traces.
const page = "rules.txt"

func TestThePageHasTheRulesOfTheModels(t *testing.T) {
	t.Parallel()
	want := tables(t)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(text), "renew it by: make model, go test ./model/ -update")
}

// rules are the defines that the head of a model names, and what is lost with each.
func rules(t *testing.T, model string) (names []string, texts map[string]string) {
	source, err := os.ReadFile(model + ".pml")
	require.NoError(t, err)
	texts = map[string]string{}
	for _, rule := range regexp.MustCompile(`(?m)^ \*   ([A-Z_]+) +(.*)$`).FindAllStringSubmatch(string(source), -1) {
		names, texts[rule[1]] = append(names, rule[1]), rule[2]
	}
	return names, texts
}

func tables(t *testing.T) string {
	bare := strings.NewReplacer(" states", "", "depth ", "")
	var b strings.Builder
	figures, err := os.ReadFile("traces/figures")
	require.NoError(t, err)
	b.WriteString("# The rules of the models\n\nMade by go test ./model/ -update; README.md explains it.\n\n## As they are\n\n| model | bounds | states | depth |\n|---|---|---|---|\n")
	for _, line := range strings.Split(strings.TrimSpace(string(figures)), "\n") {
		f := strings.Fields(line)
		require.Len(t, f, 4, line)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f[0], strings.NewReplacer("-", "as in README.md", ",", " ").Replace(f[1]), f[2], f[3])
	}
	for _, model := range []string{"guard", "witness", "owners", "doubt"} {
		all := map[string]trace{}
		for _, tr := range traces(t, model) {
			all[tr.rule] = tr
		}
		fmt.Fprintf(&b, "\n## %s.pml\n\n| define | the rule that is lost | what breaks | states, depth |\n|---|---|---|---|\n", model)
		names, texts := rules(t, model)
		for _, name := range names {
			tr, found := all[name]
			require.True(t, found, "%s has no trace: make model", name)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, texts[name], tr.breaks, bare.Replace(tr.figures))
		}
		require.Len(t, all, len(names), "traces of rules that %s.pml does not name", model)
	}
	return b.String()
}
