package orphan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// jobs is a rule about hashes of jobs, which live in one of two lists.
func jobs(p string) rules.Rule {
	return rules.Rule{
		Name: "jobs", Delete: true, Keys: p + "job:{id}", Type: "hash", Only: map[string]string{"id": "integer"},
		KeepIf: []rules.Sign{
			{Member: &rules.Member{List: p + "wait", Of: "{id}"}}, {Member: &rules.Member{List: p + "active", Of: "{id}"}},
		},
	}
}

func TestAnElementOfAListIsASignOfLife(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, jobs(p))
		for i := range 4 {
			r.do("HSET", fmt.Sprintf("%sjob:%d", p, i), "data", "{}")
		}
		r.do("RPUSH", p+"wait", "0", "10", "7")
		r.do("RPUSH", p+"active", "1")
		require.Equal(t, map[string]int{alive: 2, waiting: 2}, r.sweep("jobs").Kept)
		r.pass("jobs", rules.DefaultGrace)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() {
			r.do("RPUSH", p+"active", "2")
		}})
		r.sweep("jobs")
		require.True(t, r.exists(p+"job:0", p+"job:1", p+"job:2"), "2 has come into a list after the last look")
		require.False(t, r.exists(p+"job:3"))
	})
}

// fillList makes a list of so many elements. In Lua, as there are many.
const fillList = `for i = 1, ARGV[1] do redis.call('RPUSH', KEYS[1], 'e' .. i) end`

func TestAListThatCannotTellKeeps(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, jobs(p))
		for i := range 2 {
			r.do("HSET", fmt.Sprintf("%sjob:%d", p, i), "data", "{}")
		}
		r.do("RPUSH", p+"wait", "0")
		r.do("EVAL", fillList, 1, p+"wait", mostList)
		require.Equal(t, map[string]int{alive: 1, unknown: 1}, r.sweep("jobs").Kept, "one element too many")
		r.do("RPOP", p+"wait")
		require.Equal(t, map[string]int{alive: 1, waiting: 1}, r.sweep("jobs").Kept)
		r.pass("jobs", rules.DefaultGrace)
		lengthFirst := fmt.Sprintf(`"LINDEX",%q,"%d"],["_","LPOS"`, p+"wait", mostList)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: lengthFirst, f: func() {
			r.do("RPUSH", p+"wait", "more", "1")
		}})
		require.Equal(t, 1, r.sweep("jobs").Kept[changed], "the list has grown after the last look")
		require.True(t, r.exists(p+"job:1"))
		r.do("DEL", p+"wait", p+"active")
		r.do("SADD", p+"active", "5")
		require.Equal(t, map[string]int{unknown: 2}, r.sweep("jobs").Kept, "it is no list")
	})
}
