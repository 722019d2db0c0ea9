package programtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
)

// Tables requires the code's settings between a page's lines `<!-- begin NAME -->` and `<!-- end
// NAME -->`, except those that EveryProgram has in the same words; with update it writes them.
// Links of settings begin at docs/.
func Tables(t testing.TB, page string, update bool, tables map[string][]cli.Setting) {
	t.Helper()
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(raw)
	link := "]("
	if filepath.Base(filepath.Dir(page)) == "reference" {
		link = "](../"
	}
	for name, rows := range tables {
		begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
		before, rest, found := strings.Cut(want, begin)
		require.True(t, found, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, end)
		if name != EveryProgram {
			rows = slices.DeleteFunc(slices.Clone(rows), shared())
		}
		if name != ingest && name != EveryProgram {
			alike(rows)
		}
		want = before + begin + "\n" + strings.ReplaceAll(cli.Markdown(rows), "](", link) + "\n" + end + after
	}
	if update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(raw), "%s is not what the code says: renew it with go test -run %s -update",
		page, t.Name())
}

// EveryProgram is the table of docs/reference/settings.md to which the other tables link.
const EveryProgram = "every program"

// ingest has the table with the texts of all that other programs have alike.
const ingest = "ingest"

// alike refers rows to those of ingest that differ only in the default, or in the name's beginning.
func alike(rows []cli.Setting) {
	for i, row := range rows {
		for _, of := range new(program.Fleet).Table("JANITOR", program.Defaults{}) {
			if row.Meaning == of.Meaning && row.Consequence == of.Consequence {
				rows[i].Meaning, rows[i].Consequence = "As [ingest's](reference/settings.md#of-ingest).", ""
			}
		}
	}
}

// shared reports whether a setting is in the table of EveryProgram.
func shared() func(cli.Setting) bool {
	line := func(s cli.Setting) string { return cli.Markdown([]cli.Setting{s}) }
	every := make(map[string]bool)
	for _, s := range new(program.Base).Table() {
		every[line(s)] = true
	}
	return func(s cli.Setting) bool { return every[line(s)] }
}
