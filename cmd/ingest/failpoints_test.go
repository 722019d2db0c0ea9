//go:build !failpoints

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheShippedProgramKnowsNoFailpoints(t *testing.T) {
	t.Parallel()
	// This binary has all the program's parts. The words are assembled here, so that the test does
	// not find itself.
	binary, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	has := func(words ...string) bool { return bytes.Contains(binary, []byte(strings.Join(words, ""))) }
	require.True(t, has("JANITOR_", "INTERVAL_MS"), "the search itself is wrong")
	require.False(t, has("ROLLCALL_", "FAILPOINTS"))
	require.False(t, has("unanswered-", "register"))
}
