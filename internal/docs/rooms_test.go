package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/rollcall-redis/rollcall/"

// below lists what the code of each room may import of ours.
var below = map[string][]string{
	"internal":     {},
	"guard":        {"internal"},
	"lease":        {"internal"},
	"janitor":      {"guard", "internal", "lease"},
	"registry":     {"guard", "internal", "janitor", "lease"},
	"partition":    {"guard", "internal", "janitor", "registry"},
	"orphan":       {"guard", "internal", "janitor"},
	"handlers":     {"guard", "internal", "janitor", "partition", "registry"},
	"availability": {"guard", "internal", "janitor", "lease"},
}

func TestNoRoomImportsOneAboveIt(t *testing.T) {
	t.Parallel()
	imported := regexp.MustCompile(`(?m)^\t(?:[\w.]+ )?"` + regexp.QuoteMeta(module) + `([^/"]+)[^"]*"$`)
	walk(t, ".go", func(name, text string) {
		room, _, _ := strings.Cut(name, "/")
		may, known := below[room]
		if !known || strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, found := range imported.FindAllStringSubmatch(text, -1) {
			require.True(t, found[1] == room || slices.Contains(may, found[1]), "%s imports %s", name, found[1])
		}
	})
}

// An embedder takes over what go.mod names, whatever it imports.
func TestAnEmbedderTakesOverFewModules(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-m", "all")
	list.Dir, list.Env = "../../examples/embed", append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	require.NoError(t, err)
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	const most = 65 // beside itself and ours
	require.LessOrEqual(t, len(all), most+2, "docs/dependencies.md: which module could another of ours have instead?")
	for _, heavy := range []string{"jackc/pgx", "mongo-driver", "go.opentelemetry.io/otel", "pressly/goose"} {
		require.NotContains(t, string(out), heavy)
	}
}
