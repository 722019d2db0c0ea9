package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan"
)

// golden compares a text with a file of testdata, or writes it.
func golden(t *testing.T, name, have string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, []byte(have), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), have, "renew it by: go test ./cmd/cleanup -update")
}

func TestPlanShowsWhatWouldGoAndWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	rdb := server.Client()
	before := rdb.DBSize(t.Context()).Val()
	code, out, said := says(t, append([]string{"plan"}, on(t, server)...)...)
	require.Equal(t, cli.ExitOK, code, said)
	golden(t, "plan.txt", out)

	code, out, _ = says(t, append([]string{"plan", "--json", "--rule=bots"}, on(t, server)...)...)
	require.Equal(t, cli.ExitOK, code)
	var plans []orphan.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &plans))
	require.Len(t, plans, 1)
	require.Equal(t, "bots:state:b2", plans[0].Findings[0].Name)

	code, out, _ = says(t, append([]string{"plan", "--limit=0"}, on(t, server)...)...)
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, out, "bots: 1 more are condemned")
	require.Equal(t, before, rdb.DBSize(t.Context()).Val())

	code, _, said = says(t, append([]string{"plan", "--rule=bot"}, on(t, server)...)...)
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, said, "--rule: expected one of reservations, bots, carts")
}

func TestWhySaysWhatEachRuleFindsOfAKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	why := func(args ...string) (code int, out, said string) {
		return says(t, append(append([]string{"why"}, on(t, server)...), args...)...)
	}
	var all strings.Builder
	for _, key := range []string{"queue:reservation:ann", "queue:reservation:bob", "queue:reservation:eve", "bots:state:b2"} {
		code, out, said := why(key)
		require.Equal(t, cli.ExitOK, code, said)
		all.WriteString(out)
	}
	golden(t, "why.txt", all.String())
	code, _, said := why("somebody:else")
	require.Equal(t, cli.ExitFailed, code)
	require.Equal(t, "no rule is about somebody:else\n", said)
	code, _, said = why()
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, said, "expected a key")
}

func TestCheckSaysWhetherTheRulesFit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	rdb := server.Client()
	args := append([]string{"check"}, on(t, server)...)
	code, out, said := says(t, args...)
	require.Equal(t, cli.ExitFailed, code, "a reference is not there: %s", out)
	require.Equal(t, "cleanup check: 2 wrong\n", said)
	require.Contains(t, out, "sessions is not there: the rule is held")

	require.NoError(t, rdb.Set(t.Context(), "sessions", 1, 0).Err())
	code, out, _ = says(t, args...)
	require.Equal(t, cli.ExitNo, code, "nobody has a session")
	require.Contains(t, out, `keep_if[0]: nothing is called "session:{user}"`)
	require.NoError(t, rdb.Set(t.Context(), "session:eve", 1, 0).Err())
	code, out, said = says(t, args...)
	require.Equal(t, cli.ExitOK, code, said+out)
	// In which order SCAN meets keys is the server's.
	out = strings.Replace(out, "cart:ann", "EXAMPLE", 1)
	require.Contains(t, out, "reservations  3           string  alive 1, condemned 1, unreadable 1  queue:reservation:")
	require.Contains(t, out, "carts         1           hash    condemned 1 ")
	require.Contains(t, out, "place  reservations  roomcaches: hash")
	require.Contains(t, out, "note   carts         it only reports: delete is not true")

	require.NoError(t, rdb.Del(t.Context(), "bots:deployed").Err())
	require.NoError(t, rdb.Set(t.Context(), "bots:deployed", "text", 0).Err())
	code, out, _ = says(t, args...)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, out, "bots:deployed is a string, and the rule takes it for a set")
}

func TestTheSchemaNeedsNoRedis(t *testing.T) {
	t.Parallel()
	code, out, said := says(t, "check", "--schema")
	require.Equal(t, cli.ExitOK, code, said)
	require.True(t, json.Valid([]byte(out)))
	code, _, said = says(t, "check")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, said, "REDIS_URL: expected the URL of your Redis")
}

func TestATableHoldsWhateverKeysAreCalled(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, showPlans(&out, []orphan.Plan{
		{Rule: "carts", Held: "reference_lost", Detail: "sessions does not exist", Coverage: orphan.Coverage{Masters: 2, Of: 3}},
		{Rule: "empty", Coverage: orphan.Coverage{Masters: 3, Of: 3, Complete: true}},
	}))
	golden(t, "tables.txt", out.String())
}
