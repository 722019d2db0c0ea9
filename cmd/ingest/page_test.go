package main

import (
	"flag"
	"testing"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
)

var update = flag.Bool("update", false, "write the tables into the settings page")

func TestTheSettingsPageHasTheTablesOfTheCode(t *testing.T) {
	t.Parallel()
	programtest.Tables(t, "../../docs/reference/settings.md", *update, map[string][]cli.Setting{
		programtest.EveryProgram: new(program.Base).Table(),
		"ingest":                 new(settings).table(),
	})
}
