package orphan

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// While a reference was lost nobody looked, and what is in it now is not all that was in it.
func TestAMarkOfBeforeAReferenceWasLostIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := Rule{
			Name: "states", Delete: true, Keys: p + "state:{bot}",
			KeepIf:     []Sign{{Member: &Member{Set: p + "bots", Of: "{bot}"}}},
			UnlessLost: []Reference{{Exists: p + "bots"}}, Grace: time.Minute,
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
		rule := Rule{
			Name: "states", Keys: p + "state:{bot}", Read: "json", Grace: time.Minute,
			KeepIf: []Sign{{Value: &Value{Field: ".status", In: []string{"playing"}}}},
		}
		r := newRig(t, w.Options, p, nil, rule)
		become := func(rule Rule) {
			is, err := compile(withDefaults(rule))
			require.NoError(t, err)
			*r.set.rules[0] = *is
		}
		r.do("SET", p+"state:a", `{"status":"idle"}`)
		r.sweep("states")
		r.pass("states", time.Minute)
		rule.KeepIf = []Sign{{Value: &Value{Field: ".status", In: []string{"queued"}}}}
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
	was := Rule{Name: "a", UnlessLost: []Reference{{ExistsAny: []string{"x", "y"}, OrFor: time.Hour}}}
	is := Rule{Name: "a", UnlessLost: []Reference{{ExistsAny: []string{"v", "w"}, OrFor: time.Hour}}}
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
