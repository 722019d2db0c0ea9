package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

func TestRulesThatAreDangerousTogetherAreWarnedOf(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"takes members out of online": `
- {name: a, members: {set: online, as: u}, keep_if: [{exists: "seat:{u}"}], unless_lost: [{exists: up}]}
- {name: b, keys: "cart:{u}", keep_if: [{member: {set: online, of: "{u}"}}], unless_lost: [{exists: online}]}`,
		"takes members out of room:{r}:users": `
- {name: a, members: {set: "room:{r}:users", as: u}, keep_if: [{exists: "seat:{u}"}], unless_lost: [{exists: up}]}
- {name: b, keys: "cart:{r}:{u}", keep_if: [{member: {set: "room:{r}:users", of: "{u}"}}], unless_lost: [{exists: up}]}`,
		"grace: 1s is short": `
- {name: a, keys: "bot:{b}", grace: 1s, keep_if: [{exists: "seat:{b}"}], unless_lost: [{exists: up}]}`,
		"field.within: 1s is short": `
- {name: a, keys: "cart:{u}", keep_if: [{field: {hash: seen, field: "{u}", unit: s, within: 1s}}], unless_lost: [{exists: seen}]}`,
		"mitra:capacity:, a key of a Rollcall fleet": `
- {name: a, keys: "mitra:capacity:{m}", keep_if: [{exists: "seat:{m}"}], unless_lost: [{exists: up}]}`,
		"if one on this Redis has the default names": `
- {name: a, keys: "instance:heartbeat:{i}", keep_if: [{exists: "x:{i}"}], unless_lost: [{exists: up}]}`,
		"or_for: 1ms is short": `
- {name: a, keys: "bot:{b}", keep_if: [{member: {set: bots, of: "{b}"}}], unless_lost: [{exists_any: [bots], or_for: 1ms}]}`,
		"within: 1ms is short": `
- {name: a, keys: "cart:{u}", keep_if: [{score: {zset: seen, of: "{u}", unit: ms, within: 1ms}}], unless_lost: [{exists: seen}]}`,
		"before: 7ms is short": `
- {name: a, keys: "room:{r}", gone_if: {mongo: {collection: rooms, id: "{r}", all: [{field: at, before: 7ms}]}}}`,
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

// Two rules about one key would have to agree about it.
func TestOneRuleDecidesAboutAKey(t *testing.T) {
	t.Parallel()
	const life = `keep_if: [{exists: "session:{u}"}], unless_lost: [{exists: up}]`
	for text, refused := range map[string]bool{
		`{name: b, keys: "cart:{u}", ` + life + `}`:                                 true,
		`{name: b, keys: "cart:{u}", type: hash, ` + life + `}`:                     false, // a is about texts
		`{name: b, keys: "cart:{u}", only: {u: uuid}, ` + life + `}`:                false, // a is about numbers
		`{name: b, keys: "cart:{u}:items", ` + life + `}`:                           true,  // related to a
		`{name: b, keys: "cart:{u}:{v}", not: {v: [items]}, ` + life + `}`:          false,
		`{name: b, keys: "cart:{u}:{v}", ` + life + `}`:                             true,
		`{name: b, members: {set: "all:{x}", as: u}, ` + life + `}`:                 false,
		`{name: b, members: {set: "all", as: "{u}:{v}"}, ` + life + `}`:             true, // c's have any form
		`{name: b, members: {zset: "all", as: u}, ` + life + `}`:                    false,
		`{name: b, keys: "x:{u}", ` + life + `, related: ["y:{u}:*", "y:{u}:z:*"]}`: true,
		`{name: b, keys: "x:{u}", ` + life + `, related: ["x:{u}"]}`:                true,
		`{name: b, keys: "x:{u}", ` + life + `, related: ["x:{u}:*", "y:{u}"]}`:     false,
	} {
		rules, err := Parse([]byte(`rules:
- {name: a, keys: "cart:{u}", only: {u: integer}, type: string, ` + life + `, related: ["cart:{u}:items"]}
- {name: c, members: {set: "all", as: u}, ` + life + `}
- ` + text + "\n"))
		if !refused {
			require.NoError(t, err, text)
			require.NoError(t, Validate(Companions(rules), guard.Layout{Prefix: "{cleanup}:"}), text)
			continue
		}
		require.ErrorContains(t, err, "one rule decides about a key", text)
	}
}

func TestACompanionHasItsParentsSigns(t *testing.T) {
	t.Parallel()
	rules, err := Parse([]byte(`rules:
- name: carts
  delete: true
  keys: "cart:{u}"
  only: {u: uuid}
  read: json
  bind: {s: .session}
  keep_if: [{exists: "session:{s}"}, {exists: "user:{u}"}, {value: {field: .kept, in: ["true"]}}]
  unless_lost: [{exists: up}, {exists: "up:{s}"}]
  min_age: {field: .at, unit: ms, over: 1h}
  grace: 5m
  bin: 1h
  related: ["cart:{u}:items", "cart:{u}:note:*"]
- {name: queue, members: {zset: queue, as: u}, keep_if: [{exists: "seat:{u}"}], related: ["since:{u}"]}
`))
	require.NoError(t, err)
	all := Companions(rules)
	require.Equal(t, all, Companions(all), "once")
	items := Rule{
		Name: "carts-items", Of: "carts", Category: "carts", Delete: true, Keys: "cart:{u}:items",
		Only: map[string]string{"u": "uuid"}, KeepIf: []Sign{{Exists: "cart:{u}"}, {Exists: "user:{u}"}},
		UnlessLost: []Reference{{Exists: "up"}}, Grace: rules[0].Grace, Bin: rules[0].Bin,
	}
	require.Equal(t, items, all[1])
	require.Equal(t, "carts-note", all[2].Name)
	require.Equal(t, []Sign{{Member: &Member{ZSet: "queue", Of: "{u}"}}, {Exists: "seat:{u}"}}, all[4].KeepIf)
	require.Equal(t, []Reference{{Exists: "queue"}}, all[4].UnlessLost)
	require.True(t, all[4].Asked(all[4].UnlessLost[0]), "it keeps one, and does not hold all")
	require.False(t, all[1].Asked(all[1].UnlessLost[0]))

	_, err = Parse([]byte(`rules: [{name: a, keys: "user:{u}", read: hash,
  gone_if: {value: {field: .status, in: [gone]}}, related: ["user:{u}:*"]}]`))
	require.ErrorContains(t, err, "is gone with it")
	require.ErrorContains(t, err, `{keys: "user:{u}:{part}", keep_if: [{exists: "user:{u}"}], ...}`)
}

func TestSlipsAreRefusedWhenTheyAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`keys: "cart:{{u}}", keep_if: [{exists: "x:{u}"}]`: "want a variable",
		`keys: "cart:{u}", keep_if: [{exists: "x:{{u}}"}]`: "want a variable",
		`keys: "queue:{u}", keep_if: [{exists: "x:{u}"}]}
- {name: b, members: {set: "queue:all", as: u}, keep_if: [{exists: "x:{u}"}]`: "could delete queue:all, which rules[1]",
	} {
		rules, err := Parse([]byte("rules:\n- {name: a, " + text + "}\n"))
		if err == nil {
			err = Validate(rules, guard.Layout{Prefix: "{cleanup}:"})
		}
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{
		`keys: "game:instance:{i}", keep_if: [{exists: "x:{i}"}]`,
		`keys: "app:{env}:{kind}:{i}", keep_if: [{exists: "x:{i}"}]`,
		`keys: "eu:janitor:{i}", only: {i: integer}, keep_if: [{exists: "x:{i}"}]`,
		`keys: "cart:{{u}}:{id}", keep_if: [{exists: "x:{{u}}:{id}"}]`,
	} {
		rules, err := Parse([]byte("rules:\n- {name: a, unless_lost: [{exists: up}], " + text + "}\n"))
		require.NoError(t, err, text)
		require.NoError(t, Validate(rules, guard.Layout{Prefix: "{cleanup}:"}), text)
		require.Empty(t, Warnings(rules), text)
	}
}

func TestKeysOfAnyRollcallAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`keys: "{{rollcall}}:instance:{kind}:{i}", keep_if: [{exists: "x:{i}"}]`:                    "instance:heartbeat:, a key of a Rollcall fleet",
		`keys: "shop-instance:devices:{i}", keep_if: [{exists: "x:{i}"}]`:                           "instance:devices:, a key of a Rollcall fleet",
		`keys: "eu:janitor:{i}", keep_if: [{exists: "x:{i}"}]`:                                      "janitor:leader, a key of a Rollcall fleet",
		`keys: "{{p3}}:orphan:{kind}:{rule}", keep_if: [{exists: "x:{rule}"}]`:                      "orphan:marks:, a key of a Rollcall fleet",
		`keys: "eu:orphan:intents:{rule}", keep_if: [{exists: "x:{rule}"}]`:                         "orphan:intents:, a key of a Rollcall fleet",
		`members: {hash: "{{shop}}:orphan:passes", as: i}, keep_if: [{exists: "x:{i}"}]`:            "orphan:passes, a key of a Rollcall fleet",
		`keys: "eu:connections:{i}", keep_if: [{exists: "x:{i}"}]`:                                  "connections:registry, a key of a Rollcall fleet",
		`members: {hash: "{{rollcall}}:connections:registry", as: i}, keep_if: [{exists: "x:{i}"}]`: "connections:registry, a key of a Rollcall fleet",
	} {
		rules, err := Parse([]byte("rules:\n- {name: a, unless_lost: [{exists: up}], " + text + "}\n"))
		require.NoError(t, err, text)
		warnings := Warnings(rules)
		require.Len(t, warnings, 1, text)
		require.Contains(t, warnings[0], want)
	}
}
