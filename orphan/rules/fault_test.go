package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A faultCase is a document with one fault, of the rule carts if it names none. Form: the schema
// refuses it, too.
type faultCase struct {
	name, yaml, want string
	form             bool
}

// ruleOf is a document with one rule without fault, to which lines are added. They begin at line 4.
func ruleOf(lines ...string) string {
	return "rules:\n- name: carts\n  keep_if: [{exists: 'user:{id}'}]\n  " + strings.Join(lines, "\n  ")
}

// cart is such a rule, whose candidates are keys. Lines begin at line 5.
func cart(lines ...string) string {
	return ruleOf(append([]string{"keys: 'cart:{id}'"}, lines...)...)
}

// seat is such a rule, whose candidates are members. Lines begin at line 5.
func seat(lines ...string) string {
	return ruleOf(append([]string{"members: {zset: seats, as: id}"}, lines...)...)
}

// evidence is a rule that says gone_if, in its last line: 4.
func evidence(goneIf string) string {
	return "rules:\n- name: carts\n  keys: 'cart:{id}'\n  gone_if: " + goneIf
}

// signsOf is a rule with signs, each in one line. They begin at line 5.
func signsOf(signs ...string) string {
	return bare("keys: 'cart:{id}'", "keep_if:\n  - "+strings.Join(signs, "\n  - "))
}

// bare is a rule of which nothing but the name is given. Lines begin at line 3.
func bare(lines ...string) string {
	return "rules:\n- name: carts\n  " + strings.Join(lines, "\n  ")
}

var faultCases = []faultCase{
	{"an empty document", "", `line 1: want at least one rule: {rules: [...]}`, false},
	{"another document behind it", cart() + "\n---\nrules: []", `line 1: want one document`, false},
	{"no YAML", "rules:\n- name: [a", `line 1: did not find expected ',' or ']'`, false},
	{"no fields", "- name: a", `line 1: want fields, such as {name: value}`, false},
	{"an empty list of rules", "rules: []", `line 1: rules: is empty`, true},
	{"rules that are no list", "rules: all", "line 1: want a list, not `all`", true},
	{"an unknown field near a known one", cart("realted: ['cart:{id}:items']"),
		`line 5: realted: unknown field; is it related?`, true},
	{"a field that stands twice", cart("cap: 5", "cap: 6"),
		`line 6: rules[0]: cap: mapping key "cap" already defined at line 5`, false},
	{"a field without a value", cart("related:"),
		`line 5: related: is empty`, true},
	{"a field that is no text", cart("5: a"),
		`line 5: 5: unknown field`, false},
	{"text where a list belongs", cart("related: 'cart:{id}:items'"),
		"line 5: related: want a list, not `cart:{i...`", true},
	{"an empty list", cart("related: []"), `line 5: related: is empty`, true},
	{"a list where text belongs", cart("category: [a]"),
		`line 5: category: want text`, true},
	{"text where a number and a switch belong", cart("cap: many", "delete: sure"),
		"line 5: cap: want a whole number, not `many`\nline 6: delete: want true or false, not `sure`", true},
	{"a duration without unit", cart("grace: 90"),
		"line 5: grace: want a duration with its unit, such as 90s, 10m or 24h, not `90`", true},
	{"a negative duration", cart("bin: -5m"), `line 5: bin: is negative`, true},
	{"a duration of nothing", cart("grace: 0s"),
		`line 5: grace: is zero: leave it out, or want more`, false},
	{"a rule without a name", "rules:\n- keys: 'cart:{id}'\n  keep_if: [{exists: 'user:{id}'}]",
		`line 2: rules[0]: want name`, true},
	{"a name with a capital letter",
		"rules:\n- name: Carts\n  keys: 'cart:{id}'\n  keep_if: [{exists: 'user:{id}'}]",
		`line 2: rules[0] "Carts": name: want lower-case letters, digits, '-' and '_', not "Carts"`, true},
	{"a name that stands twice", cart() + "\n" + cart()[len("rules:\n"):],
		`line 5: rules[1] "carts": name: stands twice: it is the name of rules[0], too`, false},
	{"neither keys nor members", ruleOf("cap: 5"),
		`line 2: want exactly one of keys, members, not none`, true},
	{"'*' alone", ruleOf("keys: '*'"),
		`line 4: keys: "*": '*' is for the end of related: name what differs, such as {id}; the character itself is \x2a`, false},
	{"keys that begin with a variable", ruleOf("keys: '{id}:cart'"),
		`line 4: keys: "{id}:cart": want at least 2 characters before what differs, or in only what one variable looks like`, false},
	{"keys with one character before the variable", ruleOf("keys: 'c{id}'"),
		`line 4: keys: "c{id}": want at least 2 characters before what differs`, false},
	{"keys without a variable",
		bare("keys: cart", "bind: {id: .id}", "read: json", "keep_if: [{exists: 'user:{id}'}]"),
		`line 3: keys: "cart": want a variable for what differs, such as {id}`, false},
	{"keys whose variables cannot be told apart", ruleOf("keys: 'cart:{id}-{shop}'"),
		`line 4: keys: "cart:{id}-{shop}": the end of {id} cannot be told: want ':' behind it`, false},
	{"a brace that does not close", ruleOf("keys: 'cart:{id'"),
		`line 4: keys: "cart:{id": want a variable in braces, such as {user}`, false},
	{"two variables without text between", ruleOf("keys: 'cart:{id}{shop}'"),
		`line 4: keys: "cart:{id}{shop}": text has to stand between two variables`, false},
	{"members of many keys", ruleOf("members: {set: 'a:{id}', as: id}"),
		`line 4: members.as: {id} is a variable of the key already`, false},
	{"parts of a member that cannot be told apart",
		bare("members: {set: a, as: '{id}-{kind}'}", "keep_if: [{exists: 'user:{id}:{kind}'}]"),
		`line 3: members.as: "{id}-{kind}": the end of {id} cannot be told: want ':' behind it`, false},
	{"related keys that lack a part of the member",
		bare("members: {set: a, as: '{id}:{kind}'}", "keep_if: [{exists: 'user:{id}'}]", "related: ['cart:{id}']"),
		`line 5: related[0]: "cart:{id}": want all of {id}, {kind}, too: else one candidate takes what is another's`, false},
	{"an unknown way to read", cart("read: xml"),
		`line 5: read: want json or hash or text, not "xml"`, true},
	{"members that are read", seat("read: json"),
		`line 5: read: is for keys, and json or text for members of a hash: other members have no value`, false},
	{"a binding of text", cart("read: text", "bind: {room: .room}"),
		`line 6: bind.room: want "." with read: text, for the whole value, and a field such as .id with json or hash`, false},
	{"words that would spare what is deleted otherwise", bare("keys: 'q:{queue}:{job}'", "type: hash",
		"keep_if: [{member: {zset: 'q:{queue}:done', of: '{job}'}}]", "unless_lost: [{exists: 'q:{queue}:id'}]"),
		`line 3: keys: could delete unless_lost[0].exists, which the rule relies on: leave it out with not: {job: [id]}`, false},
	{"a type that spares nothing", bare("keys: 'q:{queue}:{job}'", "type: zset",
		"keep_if: [{member: {zset: 'q:{queue}:done', of: '{job}'}}]"),
		`line 3: keys: could delete keep_if[0].member.zset, which the rule relies on: leave it out with not: {job: [done]}`, false},
	{"a score in ISO 8601", seat("min_age: {score: true, unit: iso, over: 1m}"),
		`line 5: min_age.unit: want ms or s: a score is a number`, false},
	{"evidence that lasts too short", bare("keys: 'cart:{id}'", "gone_if: {missing: .id}", "read: hash", "grace: 10s"),
		`line 6: grace: want at least 1m0s: for so long the candidate stays as it is`, false},
	{"an expiry of a member", bare("members: {set: seats, as: id}", "gone_if: {no_expiry: true}", "grace: 1h"),
		`line 4: gone_if.no_expiry: is for keys: a member has no expiry of its own`, false},
	{"no_expiry that is false", bare("keys: 'cart:{id}'", "gone_if: {no_expiry: false}", "grace: 1h"),
		`line 4: gone_if: want exactly one of mongo, value, missing, no_expiry, not none`, false},
	{"a time of a field without its unit", signsOf("field: {hash: h, field: '{id}', within: 1m}"),
		`line 5: keep_if[0].field: want unit and within, or neither`, false},
	{"a binding without a dot", cart("read: json", "bind: {room: room}"),
		`line 6: bind.room: want a field such as .id, or .player.id, not "room"`, true},
	{"a binding into a field of a hash", cart("read: hash", "bind: {room: .room.id}"),
		`line 6: bind.room: want one field such as .id, not ".room.id": a hash holds no others`, false},
	{"a binding with a strange name", cart("read: json", "bind: {'my room': .room}"),
		`line 6: bind.my room: want letters, digits and '_' for a variable, not "my room"`, false},
	{"a binding of a variable that keys has", cart("read: json", "bind: {id: .id}"),
		`line 6: bind.id: is a variable of keys or members already`, false},
	{"only of an unknown variable", cart("only: {user: uuid}"),
		`line 5: only.user: no keys, as or bind gives {user}; known: {id}`, false},
	{"neither keep_if nor gone_if", bare("keys: 'cart:{id}'"),
		`line 2: want keep_if or gone_if: without a sign, everything is an orphan`, true},
	{"a sign of two kinds", signsOf("{exists: 'user:{id}', channel: '{id}'}"),
		`line 5: keep_if[0]: want exactly one of ` +
			`exists, field, member, score, channel, value, json, mongo, not exists and channel`, true},
	{"a sign with an unknown variable", signsOf("exists: 'user:{user}'"),
		`line 5: keep_if[0].exists: no keys, as or bind gives {user}; known: {id}`, false},
	{"a sign without a variable", signsOf("exists: user"),
		`line 5: keep_if[0].exists: "user": want a variable: it would say the same of ` +
			`every candidate`, false},
	{"a field that is the same for all candidates", signsOf("field: {hash: users, field: id}"),
		`line 5: keep_if[0].field: want a variable: it would say the same of every candidate`, false},
	{"a score of an unknown unit", signsOf("score: {zset: a, of: '{id}', unit: m, within: 5m}"),
		`line 5: keep_if[0].score.unit: want ms or s, not "m"`, true},
	{"evidence of nothing", evidence("{}"), `line 4: gone_if: is empty`, true},
	{"a condition without a choice or a time",
		evidence("{mongo: {collection: c, id: '{id}', all: [{field: a}]}}"),
		`line 4: gone_if.mongo.all[0]: want exactly one of in, before, not none`, true},
	{"a reference with a variable", cart("unless_lost: [{exists: 'user:{id}'}]"),
		`line 5: unless_lost[0].exists: is keep_if[0], too: nothing would ever go`, false},
	{"or_for without exists_any", cart("unless_lost: [{exists: users, or_for: 5m}]"),
		`line 5: unless_lost[0].or_for: is for exists_any alone`, true},
	{"an empty name among exists_any", cart("unless_lost: [{exists_any: [users, '']}]"),
		`line 5: unless_lost[0].exists_any[1]: is empty`, true},
	{"any channel",
		cart("unless_lost: [{channels: {pattern: '*', when: {hash_not_empty: rooms}}}]"),
		`line 5: unless_lost[0].channels.pattern: "*": want some text: any channel would do`, false},
	{"an age from nowhere", cart("min_age: {over: 5m}"),
		`line 5: min_age: want exactly one of from_ttl, key, field, score, not none`, true},
	{"no age", cart("min_age: {from_ttl: 1h}"), `line 5: min_age: want over`, true},
	{"an age without unit", cart("min_age: {over: 5m, key: 'cart:{id}:at'}"),
		`line 5: min_age: want unit: ms, s or iso`, true},
	{"an age from the expiry with a unit", cart("min_age: {over: 5m, from_ttl: 1h, unit: s}"),
		`line 5: min_age.unit: is for key, field and score: from_ttl has its own`, true},
	{"an age that is never reached", cart("min_age: {over: 1h, from_ttl: 1h}"),
		`line 5: min_age.over: want less than from_ttl: its keys are gone before they are so old`, false},
	{"an age from the expiry of a member", seat("min_age: {over: 5m, from_ttl: 1h}"),
		`line 5: min_age.from_ttl: is for keys: a member has no expiry of its own`, false},
	{"an age from the score of a key", cart("min_age: {over: 5m, score: true, unit: s}"),
		`line 5: min_age.score: needs members: {zset: ...}`, false},
	{"an age not from the score", seat("min_age: {over: 5m, score: false, unit: s}"),
		`line 5: min_age: want exactly one of from_ttl, key, field, score, not none`, true},
	{"if_missing without key",
		seat("min_age: {over: 5m, score: true, unit: s, if_missing: first_seen}"),
		`line 5: min_age.if_missing: is for key alone`, true},
	{"related that is anything", cart("related: ['*']"),
		`line 5: related[0]: "*": want at least 2 characters before what differs`, false},
	{"related without the variable", cart("related: ['items:all']"),
		`line 5: related[0]: "items:all": want all of {id}, too: else one candidate takes what is another's`, false},
	{"related with an unknown variable", cart("related: ['items:{id}:{user}']"),
		`line 5: related[0]: "items:{id}:{user}": want variables of keys or members alone: {id}; for others write a ` +
			`rule of its own`, false},
	{"related whose variable ends anywhere", cart("related: ['items:{id}*']"),
		`line 5: related[0]: "items:{id}*": the end of {id} cannot be told: want ':' behind it`, false},
	{"related that could be the key of members", seat("related: ['se{id}']"),
		`line 5: related[0]: could delete keep_if[0].member.zset, which the rule relies on: leave it out with not: {id: [ats]}`, false},
	{"an empty related", cart("related: ['']"),
		`line 5: related[0]: is empty`, true},
	{"a rule that deletes the set it relies on",
		bare("keys: 'bots:{id}'", "keep_if: [{member: {set: 'bots:active', of: '{id}'}}]"),
		`line 3: keys: could delete keep_if[0].member.set, which the rule relies on: leave it out with not: {id: [active]}`, false},
	{"a rule whose related keys could be the hash it relies on",
		bare("keys: 'bots:{id}'", "keep_if: [{field: {hash: 'state:1:of', field: '{id}'}}]",
			"related: ['state:{id}:*']"),
		`line 5: related[0]: could delete keep_if[1].field.hash, which the rule relies on: leave it out with not: {id: [1]}`, false},
	{"a rule that deletes what unless_lost names",
		ruleOf("keys: 'user:{id}'", "unless_lost: [{exists: 'user:all'}]"),
		`line 4: keys: could delete unless_lost[0].exists, which the rule relies on: leave it out with not: {id: [all]}`, false},
	{"a rule that deletes the set another relies on",
		bare("keys: 'bots:{id}'", "only: {id: integer}", "keep_if: [{exists: 'bot:{id}'}]",
			"related: ['bots:{id}:log']") + "\n- name: states\n  keys: 'state:{id}'\n" +
			"  keep_if: [{member: {set: 'bots:of:{id}', of: '{id}'}}]\n" +
			"  unless_lost: [{exists_any: ['bots:active', 'bots:12']}]",
		`line 3: keys: could delete bots:12, which rules[1] "states" relies on: ` +
			`unless_lost[0].exists_any[1]`, false},
	{"a rule that empties the set it relies on",
		bare("members: {set: users, as: id}", "keep_if: [{member: {set: users, of: 'main-{id}'}}]"),
		`line 3: members: could empty keep_if[0].member.set, which the rule relies on`, false},
	{"too short a grace", cart("grace: 10ms"),
		`line 5: grace: want at least 1s: the absence of a sign has to last`, false},
	{"too short a bin", cart("bin: 1s"), `line 5: bin: want at least 1m0s`, false},
	{"a cap of nothing", cart("cap: 0"), `line 5: cap: is zero: leave it out, or want more`, true},
}

func TestEachFaultIsNamedWithItsLine(t *testing.T) {
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			rules, err := Parse([]byte(c.yaml))
			require.Nil(t, rules)
			require.Error(t, err)
			require.Equal(t, c.want, strings.ReplaceAll(err.Error(), `rules[0] "carts": `, ""))
		})
	}
}
