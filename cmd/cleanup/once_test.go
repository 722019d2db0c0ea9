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
	_, out, _ := says(t, append([]string{"plan"}, on(t, server)...)...)
	golden(t, "plan.txt", out)
	code, out, said := says(t, append([]string{"plan", "--json", "--rule=bots"}, on(t, server)...)...)
	require.Equal(t, cli.ExitOK, code, said)
	var plans []orphan.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &plans))
	require.Len(t, plans, 1)
	require.Equal(t, "bots:state:b2", plans[0].Findings[0].Name)
	tells(t, `
		0 plan $ON --limit=0 ~ bots: 1 more are condemned
		2 plan $ON --rule=bot ~ --rule: expected one of reservations, bots, carts`, server)
	require.Equal(t, before, rdb.DBSize(t.Context()).Val())
}

func TestWhySaysWhatEachRuleFindsOfAKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	var all strings.Builder
	for _, key := range []string{"queue:reservation:ann", "queue:reservation:bob", "queue:reservation:eve", "bots:state:b2"} {
		code, out, said := says(t, append(append([]string{"why"}, on(t, server)...), key)...)
		require.Equal(t, cli.ExitOK, code, said)
		all.WriteString(out)
	}
	golden(t, "why.txt", all.String())
	tells(t, `
		1 why $ON somebody:else ~ ^no rule is about somebody:else$
		2 why $ON ~ expected a key`, server)
}

func TestCheckSaysWhetherTheRulesFit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	rdb := server.Client()
	tells(t, `
		1 check $ON ~ ^cleanup check: 2 wrong$
		1 check $ON ~ sessions is not there: the rule is held`, server)
	require.NoError(t, rdb.Set(t.Context(), "sessions", 1, 0).Err())
	tells(t, `3 check $ON ~ keep_if\[0\]: nothing is called "session:{user}"`, server) // nobody has a session
	require.NoError(t, rdb.Set(t.Context(), "session:eve", 1, 0).Err())
	tells(t, `
		0 check $ON ~ ^reservations +3 +string +alive 1, condemned 1, unreadable 1 +queue:reservation:
		0 check $ON ~ ^carts +1 +hash +condemned 1 +
		0 check $ON ~ ^place +reservations +roomcaches: hash
		0 check $ON ~ ^note +carts +it only reports: delete is not true`, server)
	require.NoError(t, rdb.Del(t.Context(), "bots:deployed").Err())
	require.NoError(t, rdb.Set(t.Context(), "bots:deployed", "text", 0).Err())
	tells(t, `1 check $ON ~ bots:deployed is a string, and the rule takes it for a set`, server)
}

func TestTheSchemaNeedsNoRedis(t *testing.T) {
	t.Parallel()
	code, out, said := says(t, "check", "--schema")
	require.Equal(t, cli.ExitOK, code, said)
	require.True(t, json.Valid([]byte(out)))
	tells(t, `2 check ~ REDIS_URL: expected the URL of your Redis`, nil)
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
