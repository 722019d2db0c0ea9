package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

func TestRulesThatAreDangerousTogetherAreWarnedOf(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"is about the same candidates": `
- {name: a, keys: "cart:{u}", keep_if: [{exists: "session:{u}"}], unless_lost: [{exists: up}]}
- {name: b, keys: "cart:{x}", keep_if: [{exists: "order:{x}"}], unless_lost: [{exists: up}]}`,
		"about the same candidates: they": `
- {name: a, members: {set: all, as: u}, keep_if: [{exists: "session:{u}"}], unless_lost: [{exists: up}]}
- {name: b, members: {set: all, as: u}, keep_if: [{exists: "order:{u}"}], unless_lost: [{exists: up}]}`,
		"can be a candidate of rules[1]": `
- {name: a, keys: "user:{u}", keep_if: [{exists: "session:{u}"}], unless_lost: [{exists: up}], related: ["user:{u}:*"]}
- {name: b, keys: "user:{u}:cart", keep_if: [{exists: "order:{u}"}], unless_lost: [{exists: up}]}`,
		"takes members out of online": `
- {name: a, members: {set: online, as: u}, keep_if: [{exists: "seat:{u}"}], unless_lost: [{exists: up}]}
- {name: b, keys: "cart:{u}", keep_if: [{member: {set: online, of: "{u}"}}], unless_lost: [{exists: online}]}`,
		"if a fleet on this Redis has the default names": `
- {name: a, keys: "instance:heartbeat:{i}", keep_if: [{exists: "x:{i}"}], unless_lost: [{exists: up}]}`,
		"or_for: 1ms is short": `
- {name: a, keys: "bot:{b}", keep_if: [{member: {set: bots, of: "{b}"}}], unless_lost: [{exists_any: [bots], or_for: 1ms}]}`,
		"within: 1ms is short": `
- {name: a, keys: "cart:{u}", keep_if: [{score: {zset: seen, of: "{u}", unit: ms, within: 1ms}}], unless_lost: [{exists: seen}]}`,
		"has the empty text": `
- {name: a, keys: "room:{r}", read: json, gone_if: {value: {field: .owner, in: [""]}}}`,
		"may be in use again": `
- {name: a, keys: "room:{r}", gone_if: {mongo: {collection: rooms, id: "{r}", all: [{field: status, in: [closed]}]}}}`,
	} {
		rules, err := Parse([]byte("rules:" + text + "\n"))
		require.NoError(t, err, want)
		require.NoError(t, Validate(rules, guard.Layout{Prefix: "{cleanup}:"}), want)
		warnings := Warnings(rules)
		require.Len(t, warnings, 1, want)
		require.Contains(t, warnings[0], want)
	}
	rules, err := Parse([]byte(strings.TrimSpace(`
rules:
- {name: a, keys: "x:{id}", only: {id: uuid}, keep_if: [{exists: "s:{id}"}], unless_lost: [{exists: up}]}
- {name: b, keys: "x:{id}", only: {id: integer}, keep_if: [{exists: "s:{id}"}], unless_lost: [{exists: up}]}`)))
	require.NoError(t, err)
	require.Empty(t, Warnings(rules))
}

func TestThatRelatedKeysStayIsNoted(t *testing.T) {
	t.Parallel()
	rules, err := Parse([]byte(`rules:
- {name: a, members: {set: queue, as: u}, keep_if: [{exists: "seat:{u}"}], unless_lost: [{exists: up}], related: ["user:{u}"]}`))
	require.NoError(t, err)
	require.Empty(t, Warnings(rules))
	require.Len(t, Notes(rules), 1)
	require.Contains(t, Notes(rules)[0], "with a ':' or a brace")
	rules[0].Only = map[string]string{"u": "uuid"}
	require.Empty(t, Notes(rules))
}

func TestRelatedKeysThatOthersLookAtAreNamed(t *testing.T) {
	t.Parallel()
	parsed := func(text string) []Rule {
		rules, err := Parse([]byte("rules:" + text + "\n"))
		require.NoError(t, err)
		require.NoError(t, Validate(rules, guard.Layout{Prefix: "{cleanup}:"}))
		return rules
	}
	both := parsed(`
- {name: a, keys: "cart:{u}", keep_if: [{exists: "order:{u}"}], unless_lost: [{exists: up}], related: ["user:{u}:*"]}
- {name: b, keys: "profile:{u}", keep_if: [{exists: "login:{u}"}], unless_lost: [{exists: up}], related: ["user:{u}:meta"]}`)
	require.Empty(t, Warnings(both))
	require.Len(t, Notes(both), 1)
	require.Contains(t, Notes(both)[0], "as long as a candidate of one of both exists")
	for want, text := range map[string]string{
		"keep_if[0].exists": `
- {name: a, keys: "cart:{u}", keep_if: [{exists: "order:{u}"}], unless_lost: [{exists: up}], related: ["session:{u}"]}
- {name: b, keys: "profile:{u}", keep_if: [{exists: "session:{u}"}], unless_lost: [{exists: up}]}`,
		"keep_if[0].member.set": `
- {name: a, keys: "room:{r}", keep_if: [{exists: "game:{r}"}], unless_lost: [{exists: up}], related: ["room:{r}:users"]}
- {name: b, keys: "seat:{r}:{u}", keep_if: [{member: {set: "room:{r}:users", of: "{u}"}}], unless_lost: [{exists: up}]}`,
	} {
		rules := parsed(text)
		found := strings.Join(Warnings(rules), "\n")
		require.Contains(t, found, "can be a sign of life for rules[1] \"b\": "+want)
	}
}

func TestListsThatAreEmptyAreAsGoodAsNone(t *testing.T) {
	t.Parallel()
	alive := []Sign{{Exists: "user:{id}"}}
	for _, r := range []Rule{
		{GoneIf: &Evidence{Mongo: &Mongo{Collection: "c", ID: "{id}", All: []Condition{}}}},
		{GoneIf: &Evidence{Mongo: &Mongo{Collection: "c", ID: "{id}", All: []Condition{{Field: "a", In: []string{}}}}}},
		{Read: "json", KeepIf: []Sign{{Value: &Value{Field: ".a", In: []string{}}}}},
		{KeepIf: alive, UnlessLost: []Reference{{ExistsAny: []string{}}}},
		{KeepIf: alive, Not: map[string][]string{"id": {}}},
		{KeepIf: []Sign{}},
	} {
		r.Name, r.Keys = "carts", "cart:{id}"
		require.Error(t, Validate([]Rule{r}, guard.Layout{}), "%+v", r)
	}
}
