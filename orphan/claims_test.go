package orphan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Both rules call user:{u}:meta related: a cart that is over must not take what a profile uses.
func TestARelatedKeyOfTwoRulesStaysAsLongAsACandidateOfEitherExists(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		carts := rules.Rule{Name: "carts", Delete: true, Keys: p + "cart:{u}", KeepIf: []rules.Sign{{Exists: p + "order:{u}"}},
			Grace: time.Minute, Related: []string{p + "user:{u}:meta", p + "user:{u}:log:*"}}
		profiles := carts
		profiles.Name, profiles.Keys, profiles.KeepIf = "profiles", p+"profile:{u}", []rules.Sign{{Exists: p + "login:{u}"}}
		queue := rules.Rule{Name: "queue", Delete: true, Members: &rules.Members{Hash: p + "queue", As: "u"}, Grace: time.Minute,
			KeepIf: []rules.Sign{{Exists: p + "seat:{u}"}}, Related: []string{p + "user:{u}:meta"}}
		r := newRig(t, w.Options, p, nil, carts, profiles, queue)
		goes := func() {
			for range 2 {
				r.sweep("")
				for _, rule := range []string{"carts", "profiles", "queue"} {
					r.pass(rule, time.Minute)
				}
			}
			r.sweep("")
		}
		for _, user := range []string{"ann", "bob", "cyd", "dan"} {
			r.do("MSET", p+"cart:"+user, 1, p+"profile:"+user, 1, p+"user:"+user+":meta", 1, p+"user:"+user+":log:1", 1)
		}
		r.do("DEL", p+"cart:bob", p+"profile:cyd")
		r.do("MSET", p+"login:ann", 1, p+"login:bob", 1, p+"order:cyd", 1)
		r.do("DEL", p+"profile:dan", p+"cart:dan")
		r.do("HSET", p+"queue", "dan", 1)
		r.do("SET", p+"seat:dan", 1)
		goes()
		require.False(t, r.exists(p+"cart:ann"), "it has gone alone")
		for _, user := range []string{"ann", "bob", "cyd"} {
			require.True(t, r.exists(p+"user:"+user+":meta", p+"user:"+user+":log:1"), user)
		}
		require.True(t, r.exists(p+"user:dan:meta"), "the queue has dan")
		require.False(t, r.exists(p+"user:dan:log:1"), "which is not related to the queue")
		r.do("DEL", p+"login:ann", p+"login:bob", p+"order:cyd", p+"seat:dan")
		goes()
		require.Empty(t, r.rdb.Keys(t.Context(), p+"user:*").Val())
	})
}

// A candidate of the other rule that comes between the look and the delete keeps its keys.
func TestACandidateOfAnotherRuleThatComesLateKeepsItsRelatedKey(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := func(name string) rules.Rule {
			return rules.Rule{Name: name, Delete: true, Keys: p + name + ":{u}", KeepIf: []rules.Sign{{Exists: p + "login:{u}"}},
				Grace: time.Minute, Related: []string{p + "user:{u}:meta"}}
		}
		r := newRig(t, w.Options, p, nil, rule("cart"), rule("profile"))
		r.do("MSET", p+"cart:ann", 1, p+"user:ann:meta", 1)
		r.sweep("")
		r.pass("cart", time.Minute)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: p + "cart:ann", f: func() { r.do("SET", p+"profile:ann", 1) }})
		require.Zero(t, r.sweep("cart").Removed)
		require.True(t, r.exists(p+"user:ann:meta"))
	})
}

func TestARuleDoesNotKeepWhatIsOfAnotherTypeThanItIsAbout(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := func(kind string) rules.Rule {
			return rules.Rule{Name: kind, Delete: true, Keys: p + "x:{id}", Type: kind, Grace: time.Minute,
				KeepIf: []rules.Sign{{Exists: p + "live:" + kind + ":{id}"}}}
		}
		r := newRig(t, w.Options, p, nil, rule("hash"), rule("string"))
		r.do("SET", p+"x:1", 1)
		r.do("HSET", p+"x:2", "a", 1)
		r.do("SET", p+"x:3", 1)
		r.do("SET", p+"live:string:3", 1)
		for range 2 {
			r.sweep("")
			r.pass("hash", time.Minute)
			r.pass("string", time.Minute)
		}
		require.Equal(t, []string{p + "x:3"}, r.rdb.Keys(t.Context(), p+"x:*").Val())
	})
}

// The key of an age is somebody's, and of any size.
func TestAKeyOfAnAgeIsNotReadWhole(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := rules.Rule{Name: "carts", Delete: true, Keys: p + "cart:{u}", KeepIf: []rules.Sign{{Exists: p + "live:{u}"}},
			MinAge: &rules.Age{Key: p + "at:{u}", Unit: "ms", Over: time.Minute, IfMissing: "first_seen"}}
		r := newRig(t, w.Options, p, nil, rule)
		for user, at := range map[string]any{
			"large": strings.Repeat("1700000000", 100_000), "long": "1700000000000." + strings.Repeat("0", 60), "empty": "",
			"young": ms(time.Now()), "old": "1700000000000",
		} {
			r.do("SET", p+"cart:"+user, 1)
			r.do("SET", p+"at:"+user, at)
		}
		r.do("SET", p+"cart:none", 1)
		r.do("SET", p+"cart:list", 1)
		r.do("RPUSH", p+"at:list", 1)
		seen := watch(r.set.c.Client)
		result := r.sweep("carts")
		require.Equal(t, map[string]int{unreadable: 4, young: 1, waiting: 2}, result.Kept)
		require.Less(t, seen.answers, 4096)
		r.pass("carts", time.Minute)
		require.Equal(t, 2, r.sweep("carts").Removed)
		require.False(t, r.exists(p+"cart:none") || r.exists(p+"cart:old"))
	})
}

func TestFieldsAreWalkedWithoutTheirValues(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{Name: "games", Delete: true, Members: &rules.Members{Hash: p + "games", As: "g"},
			KeepIf: []rules.Sign{{Exists: p + "live:{g}"}}, Grace: time.Minute})
		value := strings.Repeat("v", 64<<10)
		for i := range 200 {
			r.do("HSET", p+"games", fmt.Sprint(i), value)
			r.do("SET", fmt.Sprint(p, "live:", i), 1)
		}
		sent := func() int64 {
			n, err := r.rdb.InfoMap(t.Context(), "stats").Result()
			require.NoError(t, err)
			var bytes int64
			_, err = fmt.Sscan(n["Stats"]["total_net_output_bytes"], &bytes)
			require.NoError(t, err)
			return bytes
		}
		seen := watch(r.set.c.Client)
		before := sent()
		require.Equal(t, 200, r.sweep("games").Kept[alive])
		if r.rdb.HScanNoValues(t.Context(), p+"games", 0, "", 1).Err() == nil {
			require.Less(t, sent()-before, int64(1<<20))
		}
		require.Greater(t, seen.count("hscan"), 200*(64<<10)/answers/2, "a page has values of about 256 KiB")
	})
}

// XINFO GROUPS and CONSUMERS, and MEMORY USAGE, count consumers one by one.
func TestAStreamOfVeryManyConsumersIsLeftAlone(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		r.do("XADD", p+"session:consumers", "*", "a", 1)
		r.do("XGROUP", "CREATE", p+"session:consumers", "g", "$")
		r.do("EVAL", `for i = 1, ARGV[1] do redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], 'g', 'c' .. i) end`,
			1, p+"session:consumers", mostConsumers+1)
		r.do("XADD", p+"session:groups", "*", "a", 1)
		r.do("EVAL", `for i = 1, ARGV[1] do redis.call('XGROUP', 'CREATE', KEYS[1], 'g' .. i, '$') end`,
			1, p+"session:groups", mostGroups+1)
		r.do("XADD", p+"session:few", "*", "a", 1)
		r.do("XGROUP", "CREATE", p+"session:few", "g", "$")
		seen := watch(r.set.c.Client)
		require.Equal(t, map[string]int{large: 2, waiting: 1}, r.sweep("sessions").Kept)
		require.Equal(t, 1, seen.count("memory"))
		r.pass("sessions", time.Minute)
		require.Equal(t, 1, r.sweep("sessions").Removed)
	})
}
