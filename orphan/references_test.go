package orphan

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// While a reference was lost nobody looked, and what is in it now is not all that was in it.
func TestAMarkOfBeforeAReferenceWasLostIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := rules.Rule{
			Name: "states", Delete: true, Keys: p + "state:{bot}",
			KeepIf:     []rules.Sign{{Member: &rules.Member{Set: p + "bots", Of: "{bot}"}}},
			UnlessLost: []rules.Reference{{Exists: p + "bots"}}, Grace: time.Minute,
		}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"bots", "other")
		r.do("SET", p+"state:a", "old")
		r.sweep("states")
		r.pass("states", time.Minute)
		r.do("SADD", p+"bots", "a") // it lives
		r.do("DEL", p+"bots")
		require.Equal(t, heldLost, r.sweep("states").Reason)
		r.do("SADD", p+"bots", "other")
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("states").Kept)
		require.True(t, r.exists(p+"state:a"))
	})
}

// The rules of a worker change, and what it has noted stays.
func TestAMarkOfARuleOfTheSameNameThatMeantSomethingElseIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := rules.Rule{
			Name: "states", Keys: p + "state:{bot}", Read: "json", Grace: time.Minute,
			KeepIf: []rules.Sign{{Value: &rules.Value{Field: ".status", In: []string{"playing"}}}},
		}
		r := newRig(t, w.Options, p, nil, rule)
		become := func(rule rules.Rule) {
			is, err := compile(rule.WithDefaults())
			require.NoError(t, err)
			*r.set.rules[0] = *is
		}
		r.do("SET", p+"state:a", `{"status":"idle"}`)
		r.sweep("states")
		r.pass("states", time.Minute)
		rule.KeepIf = []rules.Sign{{Value: &rules.Value{Field: ".status", In: []string{"queued"}}}}
		become(rule)
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("states").Kept)
		r.pass("states", time.Minute)
		rule.Delete, rule.Cap, rule.Bin, rule.Category = true, 5, time.Hour, "other"
		become(rule)
		require.Equal(t, 1, r.sweep("states").Removed, "the same candidates")
	})
}

func TestHowLongAReferenceIsAbsentIsNotThatOfAnother(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	was := rules.Rule{Name: "a", UnlessLost: []rules.Reference{{ExistsAny: []string{"x", "y"}, OrFor: time.Hour}}}
	is := rules.Rule{Name: "a", UnlessLost: []rules.Reference{{ExistsAny: []string{"v", "w"}, OrFor: time.Hour}}}
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		rdb := redis.NewClient(w.Options)
		defer rdb.Close()
		n := &notes{state: map[string]string{}}
		found, err := (&rule{Rule: was}).references(t.Context(), plainly{rdb}, n, at)
		require.NoError(t, err)
		require.NotEmpty(t, found.lost)
		n.state = found.set
		found, err = (&rule{Rule: was}).references(t.Context(), plainly{rdb}, n, at.Add(time.Hour))
		require.NoError(t, err)
		require.Empty(t, found.lost)
		found, err = (&rule{Rule: is}).references(t.Context(), plainly{rdb}, n, at.Add(time.Hour))
		require.NoError(t, err)
		require.NotEmpty(t, found.lost)
	})
}

// A hash tag is written with braces twice, as in every other template.
func TestNamesWithoutVariablesAreTemplatesToo(t *testing.T) {
	list, err := rules.Parse([]byte(`rules:
- name: seats
  members: {zset: "{{hall}}:seats", as: id}
  keep_if: [{exists: "user:{id}"}]
  unless_lost:
  - exists: "{{hall}}:open"
  - exists_any: ["{{hall}}:a", "{{hall}}:b"]
  - channels: {pattern: "{hall}*", when: {hash_not_empty: "{{hall}}:hash"}}
`))
	require.NoError(t, err)
	r, err := compile(list[0])
	require.NoError(t, err)
	require.Equal(t, "{hall}:seats", r.oneContainer())
	require.Equal(t, []rules.Reference{
		{Exists: "{hall}:open"}, {ExistsAny: []string{"{hall}:a", "{hall}:b"}},
		{Channels: &rules.Channels{Pattern: "{hall}*", When: rules.When{HashNotEmpty: "{hall}:hash"}}},
	}, r.UnlessLost)
	require.Equal(t, "{{hall}}:open", list[0].UnlessLost[0].Exists)
}
