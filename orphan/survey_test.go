package orphan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// surveyed returns what a survey says of the first of some rules.
func surveyed(t *testing.T, w redistest.World, rules ...rules.Rule) Survey {
	t.Helper()
	rdb := redis.NewClient(w.Options)
	t.Cleanup(func() { _ = rdb.Close() })
	set, err := New(Config{Rules: rules, Client: rdb})
	require.NoError(t, err)
	all, err := set.Survey(t.Context(), 3)
	require.NoError(t, err)
	return all[0]
}

func TestASignThatNothingShowsIsASlipUnlessTheRulesForeseeIt(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, rdb := w.Prefix, redis.NewClient(w.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		write := func(keys ...string) {
			for _, key := range keys {
				require.NoError(t, rdb.Set(t.Context(), p+key, 1, 0).Err())
			}
		}
		seats := func(signs ...rules.Sign) rules.Rule {
			return rules.Rule{Name: "seats", Keys: p + "seat:{room}", Grace: time.Minute, KeepIf: signs}
		}
		of := func(text string) string { return fmt.Sprintf("nothing is called %q", p+text) }

		rule := seats(rules.Sign{Channel: p + "room:{room}"})
		require.Empty(t, surveyed(t, w, rule).Cautions, "nobody has a seat")
		write("seat:1", "up")
		v := surveyed(t, w, rule)
		require.Len(t, v.Cautions, 1)
		require.Contains(t, v.Cautions[0], of("room:{room}"))

		when := rules.When{HashNotEmpty: p + "rooms"}
		rule.UnlessLost = []rules.Reference{{Channels: &rules.Channels{Pattern: p + "rom:*", When: when}}}
		require.Len(t, surveyed(t, w, rule).Cautions, 1, "that is about other channels")
		rule.UnlessLost[0].Channels.Pattern = p + "room:*"
		v = surveyed(t, w, rule)
		require.Empty(t, v.Cautions, "the rule is held where it must not be so")
		require.Contains(t, fmt.Sprint(v.Notes), of("room:{room}"))

		sub := rdb.Subscribe(t.Context(), p+"room:2")
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Close() })
		require.NotContains(t, fmt.Sprint(surveyed(t, w, rule).Notes), of("room:{room}"))

		rule = seats(rules.Sign{Exists: p + "lease:{room}"})
		require.Len(t, surveyed(t, w, rule).Cautions, 1)
		leases := rules.Rule{Name: "leases", Keys: p + "lease:{id}", Grace: time.Minute, KeepIf: []rules.Sign{{Exists: p + "node:{id}"}}}
		require.Empty(t, surveyed(t, w, rule, leases).Cautions, "another rule calls them so, too")

		rule = seats(rules.Sign{Member: &rules.Member{Set: p + "open", Of: "{room}"}})
		require.Len(t, surveyed(t, w, rule).Cautions, 1)
		rule.UnlessLost = []rules.Reference{{ExistsAny: []string{p + "open", p + "up"}}}
		require.Empty(t, surveyed(t, w, rule).Cautions, "one of both may be empty")
	})
}

func TestAPlaceThatIsMissingIsWrongOnlyWhereThereAreCandidates(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, rdb := w.Prefix, redis.NewClient(w.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		rule := session(p)
		rule.UnlessLost = []rules.Reference{{Exists: p + "missing"}}
		v := surveyed(t, w, rule)
		require.Empty(t, v.Wrong)
		require.Contains(t, v.Notes, p+"missing is not there: the rule is held")
		require.NoError(t, rdb.Set(t.Context(), p+"session:a", 1, 0).Err())
		require.Equal(t, []string{p + "missing is not there: the rule is held"}, surveyed(t, w, rule).Wrong)
	})
}

// Where nearly all names have one length, that is no accident.
func TestANameOfAnotherLengthIsOdd(t *testing.T) {
	t.Parallel()
	odd := func(names ...string) (found []string) {
		s := newShapes()
		for _, name := range names {
			s.add(&candidate{key: "cart:" + name, values: map[string]string{"u": name}}, "", "")
		}
		for _, one := range s.odd() {
			found = append(found, one.Name)
		}
		return found
	}
	tokens := func(n, length int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%c%0*dz", 'g'+i%10, length-2, i))
		}
		return all
	}
	require.Equal(t, []string{"cart:gindex"}, odd(append(tokens(20, 12), "gindex")...))
	require.Equal(t, []string{"cart:g-and-a-longer-name"}, odd(append(tokens(20, 12), "g-and-a-longer-name")...))
	require.Empty(t, odd(append(tokens(20, 12), tokens(1, 11)...)...), "one or two characters more or less are nothing")
	require.Empty(t, odd(append(tokens(20, 7), "x")...), "short names have any length")
	require.Empty(t, odd(slices.Concat(tokens(20, 12), tokens(6, 20))...), "several of another length are no accident, either")
}
