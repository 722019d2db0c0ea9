package programtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

// Tables requires the code's settings between a page's lines `<!-- begin NAME -->` and `<!-- end
// NAME -->`, or with update writes them. Links of settings begin at docs/.
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
		want = before + begin + "\n" + strings.ReplaceAll(cli.Markdown(rows), "](", link) + "\n" + end + after
	}
	if update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(raw), "%s is not what the code says: renew it with go test -run %s -update",
		page, t.Name())
}
