package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A variable that the value gives can be named in only and not, as one of the name can.
func TestWordsAndFormsOfABoundVariable(t *testing.T) {
	s := redistest.Start(t)
	lacks := []rules.Sign{{Field: &rules.Field{Hash: "beats", Field: "{worker}"}}}
	r := newRig(t, s.Options(), "{cleanup}:", nil,
		rules.Rule{
			Name: "words", Delete: true, Keys: "route:{conn}", Read: "text",
			Bind: map[string]string{"worker": "."}, Not: map[string][]string{"worker": {"system"}},
			KeepIf: lacks, UnlessLost: []rules.Reference{{Exists: "beats"}},
		},
		rules.Rule{
			Name: "forms", Delete: true, Members: &rules.Members{Hash: "presence", As: "user"}, Read: "json",
			Bind: map[string]string{"worker": ".node"}, Only: map[string]string{"worker": "integer"},
			KeepIf: lacks, UnlessLost: []rules.Reference{{Exists: "beats"}},
		})
	r.do("HSET", "beats", "w1", "1")
	r.do("SET", "route:a", "system")
	r.do("SET", "route:b", "w2")
	r.do("HSET", "presence", "ann", `{"node": "7"}`, "bob", `{"node": "w7"}`)
	require.Equal(t, map[string]int{foreign: 1, waiting: 1}, r.sweep("words").Kept)
	require.Equal(t, map[string]int{foreign: 1, waiting: 1}, r.result("forms").Kept)
	r.pass("words", rules.DefaultGrace)
	r.pass("forms", rules.DefaultGrace)
	r.sweep("")
	r.sweep("")
	require.True(t, r.exists("route:a"), "not names its worker")
	require.False(t, r.exists("route:b"))
	require.Equal(t, []string{"bob"}, r.rdb.HKeys(t.Context(), "presence").Val())
}

// A rule hears another one that leaves a thing alone by what its value says.
func TestARuleThatIsAboutOtherValuesKeepsNothing(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s.Options(), "{cleanup}:", nil,
		rules.Rule{
			Name: "all", Delete: true, Keys: "route:{conn}",
			KeepIf: []rules.Sign{{Exists: "conn:{conn}"}},
		},
		rules.Rule{
			Name: "numbers", Delete: true, Keys: "route:{conn}", Read: "text",
			Bind: map[string]string{"worker": "."}, Only: map[string]string{"worker": "integer"},
			KeepIf: []rules.Sign{{Exists: "worker:{worker}"}},
		})
	r.do("SET", "worker:7", "1")
	r.do("SET", "route:a", "7")
	r.do("SET", "route:b", "x7")
	r.do("SET", "route:c", "8")
	r.sweep("")
	for range 2 {
		r.pass("all", rules.DefaultGrace)
		r.pass("numbers", rules.DefaultGrace)
		r.sweep("")
	}
	require.True(t, r.exists("route:a"), "its worker lives, by the other rule")
	require.False(t, r.exists("route:b"), "the other rule is not about it")
	require.False(t, r.exists("route:c"))
}

// "{id}" holds no '.', so no look would ever judge "s:a.b.session".
func TestARelatedKeyOfANameThatTheRuleCannotReadIsSomebodyElses(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s.Options(), "{cleanup}:", nil, rules.Rule{
		Name: "sessions", Delete: true, Keys: "s:{id}.session", KeepIf: []rules.Sign{{Exists: "user:{id}"}}, Related: []string{"data:{id}"},
	})
	r.do("SET", "data:0123456789", "1")
	r.do("SET", "data:a.b", "1")
	for range 3 {
		r.sweep("")
		r.pass("sessions", time.Hour)
	}
	require.True(t, r.exists("data:a.b"), "nobody judges its parent")
	require.False(t, r.exists("data:0123456789"))
}
