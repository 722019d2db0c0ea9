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

// below lists what the code of each room may import of ours, without tests.
var below = map[string][]string{
	"internal":           {},
	"internal/guard":     {"internal"},
	"internal/needs":     {"internal/guard"},
	"internal/partition": {"internal", "internal/guard", "janitor", "registry"},
	"lease":              {"internal"},
	"janitor":            {"internal/guard", "internal", "lease"},
	"registry":           {"internal", "internal/guard", "lease"},
	"orphan":             {"internal", "internal/guard", "janitor", "orphan/rules"},
	"orphan/rules":       {"internal", "internal/guard"},
	"handlers":           {"internal", "janitor"},
	"rollcalltest":       {"internal"},
	"availability":       {"internal", "internal/guard", "janitor", "lease"},

	// Of the programs' common part, what it may import of itself.
	"cmd/internal/reload":  {},
	"cmd/internal/inspect": {},
	"cmd/internal/tracing": {},
	"cmd/internal/doors":   {},
	"cmd/internal/cli":     {},
	"cmd/internal/connect": {"cmd/internal/cli", "cmd/internal/reload"},
	"cmd/internal/console": {
		"cmd/internal/cli", "cmd/internal/connect", "cmd/internal/doors", "cmd/internal/inspect",
		"cmd/internal/reload",
	},
	"cmd/internal/program": {
		"cmd/internal/cli", "cmd/internal/connect", "cmd/internal/console", "cmd/internal/reload",
		"cmd/internal/tracing",
	},
}

// room returns the room of a file or package, and whether it is of the programs' common part.
func room(path string) (name string, common bool) {
	parts := strings.Split(path, "/")
	if common = len(parts) > 2 && parts[0] == "cmd" && parts[1] == "internal"; common {
		return strings.Join(parts[:3], "/"), true
	}
	if inner := strings.Join(parts[:min(2, len(parts))], "/"); below[inner] != nil {
		return inner, false
	}
	return parts[0], false
}

func TestNoRoomImportsOneAboveIt(t *testing.T) {
	t.Parallel()
	imported := regexp.MustCompile(`(?m)^(?:import|\t)[ \w.]*"` + regexp.QuoteMeta(module) + `([^"]+)"$`)
	seen := map[string]bool{}
	walk(t, ".go", func(name, text string) {
		from, common := room(name)
		may, known := below[from]
		if !known || strings.HasSuffix(name, "_test.go") {
			return
		}
		seen[from] = true
		for _, found := range imported.FindAllStringSubmatch(text, -1) {
			to, commonToo := room(found[1])
			below := common && !commonToo && to != "cmd" // the libraries
			require.True(t, below || to == from || slices.Contains(may, to), "%s imports %s", name, to)
		}
	})
	require.Len(t, seen, len(below), "a room has no code")
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
	require.LessOrEqual(t, len(all), most+2, "CONTRIBUTING.md: which module could another of ours have instead?")
	for _, heavy := range []string{"jackc/pgx", "mongo-driver", "go.opentelemetry.io/otel", "pressly/goose"} {
		require.NotContains(t, string(out), heavy)
	}
}
