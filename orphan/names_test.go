package orphan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A member is a worker's host and pid, and its queues; its sign of life has no queues.
func TestAMemberOfSeveralParts(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "workers", Delete: true, Members: &rules.Members{Set: p + "workers", As: "{host}:{pid}:{queues}"},
			Only:   map[string]string{"pid": "integer"},
			KeepIf: []rules.Sign{{Exists: p + "ping:{host}:{pid}"}}, Related: []string{p + "started:{host}:{pid}:{queues}"},
		})
		r.do("SADD", p+"workers", "web:1:mail", "web:2:mail,pay", "web:3:mail", "web:old", "web:x:mail", "web:1:a:b")
		r.do("SET", p+"ping:web:1", "1")
		r.do("SET", p+"started:web:2:mail,pay", "1")
		r.do("SET", p+"started:web:1:mail", "1")
		r.do("SET", p+"started:web:4:mail", "1") // without its member
		require.Equal(t, map[string]int{alive: 1, foreign: 3, waiting: 2}, r.sweep("workers").Kept)
		r.pass("workers", rules.DefaultGrace)
		r.do("SET", p+"ping:web:3", "1")
		r.rounds(1, rules.DefaultGrace)
		require.ElementsMatch(t, []string{"web:1:mail", "web:3:mail", "web:old", "web:x:mail", "web:1:a:b"},
			r.rdb.SMembers(t.Context(), p+"workers").Val())
		require.True(t, r.exists(p+"started:web:1:mail"))
		require.False(t, r.exists(p+"started:web:2:mail,pay"))
		require.False(t, r.exists(p+"started:web:4:mail"))
	})
}

// javaText is how Java serialises a text of 36 characters.
const javaText = "\xac\xed\x00\x05t\x00$"

func javaRules() []rules.Rule {
	uuid := map[string]string{"session": "uuid"}
	return []rules.Rule{
		{
			Name: "index", Delete: true, Only: uuid, Bin: time.Hour,
			Members: &rules.Members{Set: "index:{principal}", As: `\xac\xed\x00\x05t\x00${session}`},
			KeepIf:  []rules.Sign{{Exists: "sessions:{session}"}},
		},
		{
			Name: "carts", Delete: true, Only: uuid, Bin: time.Hour, Keys: `\xac\xed\x00\x05t\x00.cart:{session}`,
			KeepIf:  []rules.Sign{{Member: &rules.Member{Set: `\xffall`, Of: `\xac\xed\x00\x05t\x00${session}`}}},
			Related: []string{`notes\xff:{session}`},
		},
	}
}

// Names need not be text. In marks, plans and the log their bytes are spelled.
func TestNamesThatAreNotText(t *testing.T) {
	s := redistest.Start(t)
	namesThatAreNotText(t, newRig(t, s.Options(), "{cleanup}:", nil, javaRules()...))
}

func TestNamesThatAreNotTextOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, javaRules()...)
	r.set.evidence = time.Minute // this machine may be slow
	namesThatAreNotText(t, r)
}

func namesThatAreNotText(t *testing.T, r *rig) {
	live, dead := "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"
	cart := "\xac\xed\x00\x05t\x00.cart:"
	spelled := `\xac\xed\x00\x05t\x00`
	r.do("SET", "sessions:"+live, "1")
	for _, principal := range []string{"ann", "bob"} {
		r.do("SADD", "index:"+principal, javaText+live, javaText+dead, live, spelled+"$"+dead)
	}
	r.do("SADD", "\xffall", javaText+live)
	for _, session := range []string{live, dead} {
		r.do("SET", cart+session, "figs")
		r.do("SET", "notes\xff:"+session, "a gift")
	}
	r.do("SET", spelled+".cart:"+dead, "somebody else's")
	require.Equal(t, map[string]int{alive: 2, foreign: 4, waiting: 2}, r.sweep("index").Kept)
	require.Equal(t, map[string]int{alive: 1, waiting: 1}, r.result("carts").Kept)

	plans, err := r.set.Plan(t.Context(), 10)
	require.NoError(t, err)
	found := plans[0].Findings
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Name, b.Name) })
	require.Equal(t, "index:ann "+spelled+"$"+dead, found[0].Name)
	require.False(t, found[0].Since.IsZero())
	require.Equal(t, spelled+".cart:"+dead, plans[1].Findings[0].Name)
	why, err := r.set.Explain(t.Context(), "index:bob "+spelled+"$"+live)
	require.NoError(t, err)
	require.Equal(t, alive, why[0].Verdict)

	r.pass("index", rules.DefaultGrace)
	r.pass("carts", rules.DefaultGrace)
	require.Equal(t, 2, r.sweep("index").Removed, "%+v %+v", r.result("index"), r.result("carts"))
	require.Equal(t, 1, r.result("carts").Removed)
	r.rounds(1, rules.DefaultGrace)
	for _, principal := range []string{"ann", "bob"} {
		require.ElementsMatch(t, []string{javaText + live, live, spelled + "$" + dead},
			r.rdb.SMembers(t.Context(), "index:"+principal).Val())
	}
	require.False(t, r.exists(cart+dead))
	require.False(t, r.exists("notes\xff:"+dead))
	for _, key := range []string{cart + live, "notes\xff:" + live, spelled + ".cart:" + dead} {
		require.True(t, r.exists(key), key)
	}

	bins := Bins{Client: r.rdb, Layout: r.layout}
	all, err := bins.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, all, 4)
	for _, b := range all {
		back, err := bins.Restore(t.Context(), b.ID)
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate, "%+v", back)
		require.True(t, !strings.Contains(b.Name+b.Key+b.Member, "\xac"), b)
	}
	require.True(t, r.rdb.SIsMember(t.Context(), "index:ann", javaText+dead).Val())
	require.Equal(t, "figs", r.rdb.Get(t.Context(), cart+dead).Val())
	require.Equal(t, "a gift", r.rdb.Get(t.Context(), "notes\xff:"+dead).Val())
}

func TestNamesThatAreNotTextAreReadBackFromJSON(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a", "ä", `App\User`, `\x00`, `\x5cx00`, `\\x5\x41`, "\\\x01", `\xA` + "\xff", `\x`, `\xg0`, "\x00", "\x7f", "\xff", "a\xc3", "\xf0\x9f\x98\x80\xff", "\ufffd",
		`"\`, "\xe2\x80", "\u2028", "<a&b>", "\xed\xa0\x80"} {
		text, err := json.Marshal(map[string]raw{"a": raw(name)})
		require.NoError(t, err)
		var back map[string]raw
		require.NoError(t, json.Unmarshal(text, &back), "%q", text)
		require.Equal(t, name, string(back["a"]))
	}
	require.Error(t, json.Unmarshal([]byte(`[1]`), new([]raw)))
}
