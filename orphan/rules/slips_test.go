package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

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

func TestTimesThatProtectFromNothingAreWarnedOf(t *testing.T) {
	t.Parallel()
	const life = `keep_if: [{exists: "x:{u}"}], unless_lost: [{exists: up}]`
	const over = `gone_if: {mongo: {collection: c, id: "{u}", all: [{field: at, before: `
	for text, want := range map[string]string{
		`keys: "cart:{u}", grace: 5ms, ` + over + `1h}]}}`:                         "grace: 5ms is short",
		`keys: "cart:{u}", min_age: {from_ttl: 1h, over: 3ms}, ` + life:            "min_age.over: 3ms is short",
		`keys: "cart:{u}", min_age: {from_ttl: 2h, over: 1h}, ` + over + `7ms}]}}`: "before: 7ms is short",
	} {
		rules, err := Parse([]byte("rules:\n- {name: a, " + text + "}\n"))
		require.NoError(t, err, text)
		warnings := Warnings(rules)
		require.Len(t, warnings, 1, text)
		require.Contains(t, warnings[0], want)
	}
}
