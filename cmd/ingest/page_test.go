package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/service"
)

var update = flag.Bool("update", false, "write the tables into the settings page")

const settingsPage = "../../docs/settings.md"

func TestTheSettingsPageHasTheTablesOfTheCode(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(settingsPage)
	require.NoError(t, err)
	page := string(raw)
	for name, rows := range map[string][]service.Setting{
		"ingest": new(settings).table(), "ingest simulate": new(simulation).table(),
	} {
		begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
		before, rest, found := strings.Cut(page, begin)
		require.True(t, found, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, end)
		page = before + begin + "\n" + service.Markdown(rows) + "\n" + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(settingsPage, []byte(page), 0o644))
		return
	}
	require.True(t, page == string(raw), "docs/settings.md is not what the code says: renew it with\n"+
		"go test ./cmd/ingest -run TestTheSettingsPage -update")
}
