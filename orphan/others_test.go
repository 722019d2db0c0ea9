package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func TestAKeyThatOneRuleKeepsDoesNotGoByAnother(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		keys := func(name, keys, sign string, related ...string) rules.Rule {
			return rules.Rule{Name: name, Delete: true, Keys: p + keys, KeepIf: []rules.Sign{{Exists: p + sign}},
				UnlessLost: []rules.Reference{{Exists: p + "up-" + name}}, Grace: time.Minute, Related: related}
		}
		rules := []rules.Rule{
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
		old.Name, old.MinAge, old.Delete = "old", &rules.Age{FromTTL: 2 * time.Hour, Over: 20 * time.Minute}, false
		long.Related, old.Related = nil, nil
		for name, other := range map[string]struct {
			rule  rules.Rule
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
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "queue", Delete: true, Members: &rules.Members{ZSet: p + "queue", As: "user"}, Grace: time.Minute,
			KeepIf: []rules.Sign{{Exists: p + "seat:{user}"}}, Related: []string{p + "user:{user}"},
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
		rule := rules.Rule{
			Name: "queue", Delete: true, Members: &rules.Members{Set: p + "queue", As: "user"}, Grace: time.Minute,
			KeepIf: []rules.Sign{{Exists: p + "seat:{user}"}}, Related: []string{p + "user:{user}", p + "log:{user}:cart"},
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
		replies := rules.Rule{
			Name: "replies", Delete: true, Keys: p + "shop:{client}.reply.pidbox", Grace: time.Minute,
			KeepIf: []rules.Sign{{Exists: p + "client:{client}"}},
		}
		workers := rules.Rule{
			Name: "workers", Delete: true, Keys: p + "worker:{host}:{pid}", Type: "string", Grace: time.Minute,
			Not: map[string][]string{"host": {"ping"}}, KeepIf: []rules.Sign{{Exists: p + "alive:{host}:{pid}"}},
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
	r, err := compile(rules.Rule{Keys: "x:{id}-seat", Only: map[string]string{"id": "uuid"}, KeepIf: []rules.Sign{{Exists: "y:{id}"}}})
	require.NoError(t, err)
	require.NotNil(t, r.ofKey("x:123e4567-e89b-12d3-a456-426614174000-seat"))
	r, err = compile(rules.Rule{Keys: "x:{id}-seat", KeepIf: []rules.Sign{{Exists: "y:{id}"}}})
	require.NoError(t, err)
	require.Nil(t, r.ofKey("x:a-b-seat"))
	require.NotNil(t, r.ofKey("x:a-seat"))
}
