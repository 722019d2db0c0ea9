package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDemoEndsWithExactlyTheOrphansGone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, playDemo(t.Context(), &out), out.String())
	require.Contains(t, out.String(), "the rule is held (mass_failure)")
	require.Contains(t, out.String(), "Exactly the orphans went")
}
