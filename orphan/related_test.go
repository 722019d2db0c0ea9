package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Two patterns of related keys may find one key, and SCAN may give it twice.
func TestARelatedKeyThatIsFoundTwiceGoesOnce(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		for _, bin := range []time.Duration{time.Hour, 0} {
			p := fmt.Sprintf("%s%s:", w.Prefix, bin)
			rule := session(p)
			rule.Related = []string{p + "cart:{user}:*", p + "cart:{user}:item:*"}
			rule.Bin = bin
			r := newRig(t, w.Options, p, nil, rule)
			r.do("SET", p+"session:a", "old")
			r.do("SET", p+"session:b", "old")
			r.do("SET", p+"cart:a:item:1", "thing")
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			result := r.sweep("sessions")
			require.Equal(t, janitor.Done, result.Outcome, result)
			require.Equal(t, []int{2, 3}, []int{result.Removed, result.Keys})
			require.False(t, r.exists(p+"session:a") || r.exists(p+"session:b"))
			require.False(t, r.exists(p+"cart:a:item:1"))
			require.Equal(t, Stats{map[string]uint64{"sessions": 2}, map[string]uint64{"sessions": 2}, 3}, r.set.Stats())
		}
	})
}

// A member without a name has no name that a mark or the log could have.
func TestAMemberWithoutANameIsLeftAlone(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := Rule{
			Name: "waiting", Delete: true, Members: &Members{Set: p + "waiting", As: "user"},
			KeepIf: []Sign{{Exists: p + "user:{user}"}}, Grace: time.Minute,
		}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"waiting", "", "a")
		r.sweep("waiting")
		r.pass("waiting", time.Minute)
		result := r.sweep("waiting")
		require.Equal(t, []int{1, 1}, []int{result.Removed, result.Keys}, result)
		require.Equal(t, map[string]int{foreign: 1}, result.Kept)
		require.Equal(t, []string{""}, r.rdb.SMembers(t.Context(), p+"waiting").Val())
	})
}
