package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

func TestTheDemoEndsWithExactlyTheOrphansGone(t *testing.T) {
	t.Parallel()
	ferret := os.Getenv("FERRET_SERVER")
	if ferret == "" {
		t.Skip("FERRET_SERVER is not set; scripts/ferret prints it")
	}
	var out bytes.Buffer
	environ := append(os.Environ(), asMain+"=1", "GOCOVERDIR="+t.TempDir(), "RULES=/nowhere/rules.yaml")
	require.NoError(t, playDemo(t.Context(), &out, ferret, environ), out.String())
	require.Contains(t, out.String(), "rule reservations is held: reference_lost: roomcaches does not exist")
	require.Contains(t, out.String(), "exactly the orphans went")
}

func TestTheDemoNeedsADatabase(t *testing.T) {
	t.Parallel()
	code, _, said := says(t, "demo")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, said, "FERRET_SERVER: expected the program")
}
