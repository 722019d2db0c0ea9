package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
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
			require.Equal(t, Stats{map[string]uint64{"sessions": 2}, map[string]uint64{"sessions": 2}, 3, map[string]uint64{"sessions": 3}}, r.set.Stats())
		}
	})
}

// A member without a name has no name that a mark or the log could have.
func TestAMemberWithoutANameIsLeftAlone(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := rules.Rule{
			Name: "waiting", Delete: true, Members: &rules.Members{Set: p + "waiting", As: "user"},
			KeepIf: []rules.Sign{{Exists: p + "user:{user}"}}, Grace: time.Minute,
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

// What is found behind the log record cannot be undone: a user who may not do all of it does
// nothing.
func TestAUserWhoMayNotBinDeletesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rule := rules.Rule{
		Name: "waiting", Delete: true, Members: &rules.Members{ZSet: "waiting", As: "user"},
		KeepIf: []rules.Sign{{Exists: "user:{user}"}}, Related: []string{"cart:{user}"}, Grace: time.Minute, Bin: time.Hour,
	}
	for i, may := range []string{"-hset", "-persist", "-set", "-rename", "-zadd", "-zrem", ""} {
		name := fmt.Sprint("user", i)
		require.NoError(t, s.Client().Do(t.Context(), "ACL", "SETUSER", name, "on", "nopass", "~*", "&*", "+@all").Err())
		options := s.Options()
		options.Username, options.Password = name, "any"
		admin := s.Client()
		r := newRigOn(t, admin, redis.NewClient(options), redis.NewClient(lease.Options(options)), fmt.Sprint("p", i, ":"), nil, rule)
		r.do("ZADD", "waiting", 1, "a")
		r.do("SET", "cart:a", "1")
		r.sweep("waiting")
		r.pass("waiting", time.Minute)
		if may != "" {
			require.NoError(t, s.Client().Do(t.Context(), "ACL", "SETUSER", name, may).Err())
			result := r.sweep("waiting")
			require.True(t, r.exists("cart:a"), may)
			require.Equal(t, int64(1), r.rdb.ZCard(t.Context(), "waiting").Val(), may)
			require.Zero(t, result.Removed, may)
			require.Zero(t, r.set.Stats().Keys, may)
			require.Empty(t, r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Val(), may)
			continue
		}
		require.Equal(t, 1, r.sweep("waiting").Removed)
	}
}

// Of related keys without their parent, nothing but they themselves tells whether they are the
// same.
func TestRelatedKeysThatAreMadeAnewWithoutTheirParentSurvive(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Related = []string{p + "cart:{user}:*"}
		r := newRig(t, w.Options, p, nil, rule)
		many := 20
		if w.Real {
			many = 600 // more than a page
		}
		for i := range many {
			r.do("SET", fmt.Sprint(p, "cart:a:", i), "old")
		}
		r.do("SET", p+"cart:b:1", "old")
		r.do("SET", p+"cart:c:1", "old")
		r.do("SET", p+"session:c", "old")
		r.do("SET", p+"user:c", "1")
		first := r.sweep("sessions")
		require.Equal(t, []int{2, 3}, []int{first.Condemned, first.Scanned}, first)
		r.pass("sessions", time.Minute)
		r.do("DEL", p+"cart:b:1")
		r.do("SET", p+"cart:b:2", "new")
		result := r.sweep("sessions")
		require.Equal(t, []int{1, many}, []int{result.Removed, result.Keys}, result)
		require.Equal(t, map[string]int{waiting: 1, alive: 1}, result.Kept)
		require.True(t, r.exists(p+"cart:b:2", p+"cart:c:1"))
		r.pass("sessions", time.Minute)
		require.Equal(t, 1, r.sweep("sessions").Removed)
	})
}
