package orphan

import (
	"testing"

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
