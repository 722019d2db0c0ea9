package main

import (
	"flag"
	"testing"

	"github.com/rollcall-redis/rollcall/cmd/internal/service"
	"github.com/rollcall-redis/rollcall/cmd/internal/service/servicetest"
)

var update = flag.Bool("update", false, "write the tables into the settings page")

func TestTheSettingsPageHasTheTablesOfTheCode(t *testing.T) {
	t.Parallel()
	servicetest.Tables(t, "../../docs/settings.md", *update, map[string][]service.Setting{
		"ingest": new(settings).table(), "ingest simulate": new(simulation).table(),
	})
}
