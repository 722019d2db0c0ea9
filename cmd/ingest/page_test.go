package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
)

var update = flag.Bool("update", false, "write the tables into the settings page")

func TestTheSettingsPageHasTheTablesOfTheCode(t *testing.T) {
	t.Parallel()
	programtest.Tables(t, "../../docs/reference/settings.md", *update, map[string][]cli.Setting{
		programtest.EveryProgram: new(program.Base).Table(),
		"ingest":                 new(settings).table(), "ingest simulate": new(simulation).table(),
	})
}

func TestAFreshReplicaIsWellAndSaysWhenSweepingBegins(t *testing.T) {
	t.Parallel()
	p := serving(t)
	var page string
	p.Await(func() bool {
		_, page = p.Get("/")
		return strings.Contains(page, " leads</summary>term ")
	}, "the page shows the leader")
	require.Contains(t, page, "All is well")
	require.Contains(t, page, "the fleet has just started; sweeping begins in 1m")
	require.Contains(t, page, `<a href="docs/devices.md#be-a-device">be a device</a>`)
	require.Contains(t, page, connect.EmbeddedNotice)
}

func TestAnEmptySetOfAllowedDevicesIsAFinding(t *testing.T) {
	t.Parallel()
	p := serving(t, "--device-authority=set")
	p.Await(func() bool {
		_, page := p.Get("/")
		return strings.Contains(page, "the set devices:allowed is empty: no device is served")
	}, "the page names it")
}
