package rules

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

func TestAllFaultsAreNamedAtOnceByTheirLine(t *testing.T) {
	_, err := Parse([]byte(`rules:
- name: Carts
  grace: 5
  keys: "cart:{id}"
  keep_if:
  - exist: "user:{id}"
  - exists: "user:{user}"
  related: ["cart:{id}*"]
- name: seats
  cap: -1
`))
	faults := Faults{}
	require.ErrorAs(t, err, &faults)
	require.Equal(t, []string{
		`line 2: rules[0] "Carts": name: want lower-case letters, digits, '-' and '_', not "Carts"`,
		"line 3: rules[0] \"Carts\": grace: want a duration with its unit, such as 90s, 10m or 24h, not `5`",
		`line 6: rules[0] "Carts": keep_if[0].exist: unknown field; is it exists?`,
		`line 7: rules[0] "Carts": keep_if[1].exists: no keys, as or bind gives {user}; known: {id}`,
		`line 8: rules[0] "Carts": related[0]: "cart:{id}*": ` +
			`the end of {id} cannot be told: want ':' behind it`,
		`line 9: rules[1] "seats": want exactly one of keys, members, not none`,
		`line 9: rules[1] "seats": want keep_if or gone_if: without a sign, everything is an orphan`,
		`line 10: rules[1] "seats": cap: want 1 to 100000`,
	}, strings.Split(err.Error(), "\n"))
	require.Equal(t, Fault{
		Index: 0, Rule: "Carts", Field: "keep_if[0].exist", Line: 6, Text: "unknown field; is it exists?",
	}, faults[2])
}

func TestRulesThatAreGoStructsAreCheckedAlike(t *testing.T) {
	require.NoError(t, Validate(nil, guard.Layout{}))
	require.EqualError(t, Validate([]Rule{{
		Name: "carts", Keys: "cart:\xff{id}", Grace: -1, KeepIf: []Sign{{}},
		MinAge: &Age{Over: -time.Second, FromTTL: -time.Hour},
	}}, guard.Layout{}), strings.Join([]string{
		`rules[0] "carts": keys: "cart:\xff{id}": is not UTF-8`,
		`rules[0] "carts": keep_if[0]: want exactly one of ` +
			`exists, field, member, score, channel, value, json, mongo, not none`,
		`rules[0] "carts": min_age.over: is negative`,
		`rules[0] "carts": min_age.from_ttl: is negative`,
		`rules[0] "carts": grace: is negative`,
	}, "\n"))
}

func TestNoRuleIsAboutKeysOfRollcall(t *testing.T) {
	alive := []Sign{{Exists: "user:{id}"}}
	for _, r := range []Rule{
		{Keys: "connections:{id}"}, {Keys: "instance:heartbeat:{id}"}, {Keys: "instance:{what}:{id}"},
		{Keys: "instances:{id}"}, {Keys: "janitor:{id}"}, {Keys: "orphan:{id}"}, {Keys: "jan{x}:{id}"},
		{Members: &Members{Hash: "connections:registry", As: "id"}},
		{Members: &Members{Set: "instances:roster", As: "id"}},
		{Members: &Members{Set: "instance:devices:one", As: "id"}},
		{Keys: "cart:{id}", Related: []string{"commands:outbound:{id}"}},
		{Keys: "cart:{id}", Related: []string{"janitor:marks:{id}:*"}},
	} {
		r.Name, r.KeepIf = "own", alive
		require.ErrorContains(t, Validate([]Rule{r}, guard.Layout{}), "a key of Rollcall", "%+v", r)
		require.NoError(t, Validate([]Rule{r}, guard.Layout{Prefix: "tram:"}), "%+v", r)
		_, err := Parse(written(t, []Rule{r}))
		require.NoError(t, err)
	}
	for _, keys := range []string{
		"telemetry:{id}", "devices:{id}", "tram:janitor:{id}", "tr{x}:janitor:{id}",
	} {
		r := Rule{Name: "own", Keys: keys, KeepIf: alive}
		err := Validate([]Rule{r}, guard.Layout{Prefix: "tram:"})
		require.ErrorContains(t, err, "a key of Rollcall", keys)
	}
}

func TestARuleThatLosesAllWithOneKeyIsWarnedOf(t *testing.T) {
	require.Empty(t, Warnings(Colyseus()))
	bots := Colyseus()[3]
	bots.UnlessLost = []Reference{{Exists: "bots:deployed"}}
	require.Equal(t, []string{
		`rules[0] "bots": keep_if[1].member.set: unless_lost does not name "bots:active": ` +
			`if that key is lost, all candidates look dead`,
	}, Warnings([]Rule{bots}))
	queue := Colyseus()[1]
	queue.MinAge = nil
	require.Equal(t, []string{
		`rules[0] "queue": nothing in unless_lost tells that what keep_if looks for was lost`,
	}, Warnings([]Rule{queue}))
}

func TestWhatARuleLeavesOutHasADefault(t *testing.T) {
	r := Rule{Name: "carts"}.WithDefaults()
	require.Equal(t, Rule{Name: "carts", Category: "carts", Grace: time.Minute, Cap: 1000}, r)
	r = Rule{Name: "carts", GoneIf: &Evidence{}, Category: "shop", Cap: 5}.WithDefaults()
	require.Equal(t, Rule{Name: "carts", GoneIf: &Evidence{}, Category: "shop", Cap: 5}, r)
}

// written are rules as YAML.
func written(t *testing.T, rules []Rule) []byte {
	t.Helper()
	text, err := yaml.Marshal(map[string][]Rule{"rules": rules})
	require.NoError(t, err)
	return text
}

// Parse never panics, says something of each fault, and what it reads is the same when it is
// written and read again.
func FuzzParse(f *testing.F) {
	text, _ := Pack("colyseus")
	f.Add(text)
	other, err := os.ReadFile(bullmq)
	require.NoError(f, err)
	f.Add(other)
	for _, c := range faultCases {
		f.Add([]byte(c.yaml))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := Parse(text)
		if err != nil {
			faults := Faults{}
			require.ErrorAs(t, err, &faults)
			require.NotEmpty(t, faults)
			for _, fault := range faults {
				require.Positive(t, fault.Line)
				require.NotEmpty(t, fault.Text)
			}
			return
		}
		again, err := Parse(written(t, rules))
		require.NoError(t, err)
		require.Equal(t, rules, again)
		Warnings(rules)
		_ = Validate(rules, guard.Layout{})
	})
}

// A backend with a thousand queues has a thousand rules or more.
func TestParsingCostsAsMuchAsThereIsToParse(t *testing.T) {
	rules := func(n int) []byte {
		text := "rules:\n"
		for i := range n {
			text += strings.ReplaceAll("- {name: qN, keys: 'bull:qN:{job}:logs', keep_if: [{exists: 'bull:qN:{job}'}, "+
				"{member: {set: 'bull:qN:active', of: '{job}'}}], unless_lost: [{exists: 'bull:qN:id'}], "+
				"related: ['bull:qN:{job}:lock']}\n", "N", strconv.Itoa(i))
		}
		return []byte(text)
	}
	allocations := func(text []byte) float64 {
		return testing.AllocsPerRun(1, func() {
			found, err := Parse(text)
			require.NoError(t, err)
			require.NoError(t, Validate(found, guard.Layout{Prefix: "{cleanup}:"}))
		})
	}
	few, many := allocations(rules(20)), allocations(rules(200))
	require.Less(t, many, 11*few)
}

func TestARuleThatDeletesWhatAnotherReliesOnIsFoundAmongMany(t *testing.T) {
	text := "rules:\n"
	for i := range 50 {
		text += strings.ReplaceAll("- {name: qN, keys: 'bull:qN:{job}', keep_if: [{exists: 'owner:{job}'}], "+
			"unless_lost: [{exists: 'bull:qM:id'}]}\n", "N", strconv.Itoa(i))
		text = strings.ReplaceAll(text, "M", strconv.Itoa((i+7)%50))
	}
	_, err := Parse([]byte(text))
	var faults Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 50)
	require.Equal(t, `could delete bull:q0:id, which rules[43] "q43" relies on: unless_lost[0].exists`, faults[0].Text)
}
