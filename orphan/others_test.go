package orphan

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAKeyThatOneRuleKeepsDoesNotGoByAnother(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		keys := func(name, keys, sign string, related ...string) Rule {
			return Rule{Name: name, Delete: true, Keys: p + keys, KeepIf: []Sign{{Exists: p + sign}},
				UnlessLost: []Reference{{Exists: p + "up-" + name}}, Grace: time.Minute, Related: related}
		}
		rules := []Rule{
			keys("users", "user:{u}", "session:{u}", p+"user:{u}:cart", p+"user:{u}:log:*"),
			keys("carts", "user:{u}:cart", "order:{u}"),
			keys("payers", "user:{u}", "order:{u}"),
		}
		r := newRig(t, w.Options, p, nil, rules...)
		for _, rule := range rules {
			r.do("SET", p+"up-"+rule.Name, 1)
		}
		for _, user := range []string{"ann", "bob"} {
			r.do("SET", p+"user:"+user, 1)
			r.do("SET", p+"user:"+user+":cart", 1)
			r.do("SET", p+"user:"+user+":log:1", 1)
		}
		r.do("SET", p+"order:ann", 1)
		goes := func() {
			r.sweep("")
			for _, rule := range rules {
				r.pass(rule.Name, time.Minute)
			}
			r.sweep("")
		}
		r.do("DEL", p+"up-payers", p+"up-carts")
		goes()
		require.True(t, r.exists(p+"user:bob", p+"user:bob:cart"), "the other rule cannot tell")
		r.do("MSET", p+"up-payers", 1, p+"up-carts", 1)
		goes()
		require.True(t, r.exists(p+"user:ann", p+"user:ann:cart", p+"user:ann:log:1"))
		require.Zero(t, r.rdb.Exists(t.Context(), p+"user:bob", p+"user:bob:cart").Val())
	})
}

func TestAKeyOfTwoRulesHasToBeCondemnedForTheGraceOfBoth(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		short, long, old := session(p), session(p), session(p)
		long.Name, long.Grace, long.Delete = "long", 10*time.Minute, false
		old.Name, old.MinAge, old.Delete = "old", &Age{FromTTL: 2 * time.Hour, Over: 20 * time.Minute}, false
		long.Related, old.Related = nil, nil
		for name, other := range map[string]struct {
			rule  Rule
			after time.Duration
		}{"long": {long, 9 * time.Minute}, "old": {old, 19 * time.Minute}} {
			t.Run(name, func(t *testing.T) {
				p := p + name + ":"
				a, b := short, other.rule
				a.Keys, b.Keys, a.Related = p+"session:{user}", p+"session:{user}", nil
				r := newRig(t, w.Options, p, nil, a, b)
				r.do("SET", p+"session:a", "old", "EX", 3600)
				r.sweep(a.Name)
				r.pass(a.Name, other.after)
				require.Equal(t, 1, r.sweep(a.Name).Waiting)
				require.True(t, r.exists(p+"session:a"))
				r.pass(a.Name, time.Minute)
				require.Equal(t, 1, r.sweep(a.Name).Removed)
			})
		}
	})
}

func TestAMemberTakesNoKeyWhoseNameIsReadOtherwise(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, Rule{
			Name: "queue", Delete: true, Members: &Members{ZSet: p + "queue", As: "user"}, Grace: time.Minute,
			KeepIf: []Sign{{Exists: p + "seat:{user}"}}, Related: []string{p + "user:{user}"},
		})
		r.do("ZADD", p+"queue", 1, "ann:profile", 1, "bob", 1, "cyd{x}")
		for _, key := range []string{"user:ann:profile", "user:bob", "user:cyd{x}"} {
			r.do("SET", p+key, 1)
		}
		r.sweep("queue")
		r.pass("queue", time.Minute)
		require.Equal(t, 3, r.sweep("queue").Removed)
		require.True(t, r.exists(p+"user:ann:profile", p+"user:cyd{x}"))
		require.False(t, r.exists(p+"user:bob"))
	})
}

// A ':' ends a variable in a key, and can be in a member's name: user:ann:cart of a member ann:cart
// could as well be one of ann's.
func TestRelatedKeysOfAMemberWithAColonStay(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := Rule{
			Name: "queue", Delete: true, Members: &Members{Set: p + "queue", As: "user"}, Grace: time.Minute,
			KeepIf: []Sign{{Exists: p + "seat:{user}"}}, Related: []string{p + "user:{user}", p + "log:{user}:cart"},
		}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SET", p+"seat:ann", 1)
		r.do("SADD", p+"queue", "ann", "ann:cart", "bob", "dan:x")
		stays := []string{
			p + "user:ann", p + "user:ann:cart", p + "log:ann:cart", // ann lives
			p + "user:dan:x", p + "log:dan:x:cart", // of a member that goes
			p + "user:eve:cart", p + "user:eve:", p + "log:eve:x:cart", // of one that was never there
		}
		goes := []string{p + "user:bob", p + "log:bob:cart", p + "user:eve", p + "log:eve:cart"}
		for _, key := range append(stays, goes...) {
			r.do("SET", key, 1)
		}
		for range 3 {
			r.sweep("queue")
			r.pass("queue", time.Minute)
		}
		require.True(t, r.exists(stays...))
		require.Zero(t, r.rdb.Exists(t.Context(), goes...).Val())
		require.Equal(t, []string{"ann"}, r.rdb.SMembers(t.Context(), p+"queue").Val())
	})
}

func TestAVariableTakesNoNameThatIsNotMeant(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		replies := Rule{
			Name: "replies", Delete: true, Keys: p + "shop:{client}.reply.pidbox", Grace: time.Minute,
			KeepIf: []Sign{{Exists: p + "client:{client}"}},
		}
		workers := Rule{
			Name: "workers", Delete: true, Keys: p + "worker:{host}:{pid}", Type: "string", Grace: time.Minute,
			Not: map[string][]string{"host": {"ping"}}, KeepIf: []Sign{{Exists: p + "alive:{host}:{pid}"}},
		}
		r := newRig(t, w.Options, p, nil, replies, workers)
		for _, key := range []string{"shop:7.reply.pidbox", "shop:_kombu.binding.reply.pidbox", "worker:web:1", "worker:ping:web"} {
			r.do("SET", p+key, 1)
		}
		r.do("SADD", p+"worker:all:known", 1)
		r.sweep("replies")
		r.pass("replies", time.Minute)
		r.pass("workers", time.Minute)
		r.sweep("replies")
		require.True(t, r.exists(p+"shop:_kombu.binding.reply.pidbox", p+"worker:ping:web", p+"worker:all:known"))
		require.Zero(t, r.rdb.Exists(t.Context(), p+"shop:7.reply.pidbox", p+"worker:web:1").Val())
		require.Equal(t, 2, r.result("workers").Kept[foreign])
	})
}

func TestWhereOnlySaysTheFormAVariableMayHoldWhatFollows(t *testing.T) {
	t.Parallel()
	r, err := compile(Rule{Keys: "x:{id}-seat", Only: map[string]string{"id": "uuid"}, KeepIf: []Sign{{Exists: "y:{id}"}}})
	require.NoError(t, err)
	require.NotNil(t, r.ofKey("x:123e4567-e89b-12d3-a456-426614174000-seat"))
	r, err = compile(Rule{Keys: "x:{id}-seat", KeepIf: []Sign{{Exists: "y:{id}"}}})
	require.NoError(t, err)
	require.Nil(t, r.ofKey("x:a-b-seat"))
	require.NotNil(t, r.ofKey("x:a-seat"))
}

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
