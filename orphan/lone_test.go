package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// alone writes carts of users who have no session, so many of each.
func (r *rig) alone(p, user string, users, carts int) {
	r.t.Helper()
	_, err := r.rdb.Pipelined(r.t.Context(), func(pipe redis.Pipeliner) error {
		for u := range users {
			for i := range carts {
				pipe.Set(r.t.Context(), fmt.Sprintf("%scart:%s%d:%d", p, user, u, i), "old", 0)
			}
		}
		return nil
	})
	require.NoError(r.t, err)
}

// withCarts is the rule of sessions, with related keys that a pattern finds.
func withCarts(p string) rules.Rule {
	rule := session(p)
	rule.Related = []string{p + "cart:{user}:*"}
	return rule
}

// A walk meets a parent that is gone as often as it had related keys: the breaker would take one
// that lives for hundreds.
func TestAParentThatIsGoneIsLookedAtAndCountedOnce(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := withCarts(p)
		rule.Cap = 1 // ten marks
		r := newRig(t, w.Options, p, nil, rule)
		r.alone(p, "lives", 3, 700)
		r.alone(p, "gone", 15, 150)
		for i := range 3 {
			r.do("SET", fmt.Sprintf("%suser:lives%d", p, i), 1)
		}
		seen := watch(r.set.c.Client)
		result := r.sweep("sessions")
		require.Equal(t, map[string]int{alive: 3, waiting: 10, noMark: 5}, result.Kept)
		require.Equal(t, 3+10, result.Scanned, "those without a mark are not looked at")
		require.Equal(t, "5", r.rdb.HGet(t.Context(), stateKey(r.layout, "sessions"), unmarked).Val())
		require.Less(t, seen.count("exists"), 300, "of 4350 related keys")
		require.Zero(t, r.set.names.Load(), "names are forgotten with the pass")
	})
}

func TestWhatACapLeavesOfParentsThatAreGoneHasAFullPassAtOnce(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := withCarts(p)
		rule.Cap = 1
		client := func() *redis.Client { return redis.NewClient(w.Options) }
		// Two more full passes would come after three minutes.
		r := newRigEvery(t, 100*time.Second, client(), client(), redis.NewClient(lease.Options(w.Options)), p, nil, rule)
		r.alone(p, "gone", 3, 2)
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		require.Equal(t, 2, r.sweep("sessions").Left)
		waittest.Until(t, time.Millisecond, func() bool { return r.set.Stats().Keys == 6 })
	})
}

func TestNamesOfRelatedKeysHaveABound(t *testing.T) {
	t.Parallel()
	s := &Set{c: Config{Interval: time.Minute}}
	passOf := func() *pass {
		x := &pass{sweep: &sweep{rule: &rule{Rule: rules.Rule{Cap: 1000}}, set: s}, r: &Result{Kept: map[string]int{}}, lone: newLone()}
		return x
	}
	text := make([]byte, 1<<20)
	of := func(key string) *candidate { return &candidate{key: key, related: []string{string(text) + key}} }
	one, other := passOf(), passOf()
	for i := range 100 {
		one.gatherLone(of(fmt.Sprint("one", i)), false)
	}
	require.Positive(t, one.roomForNames())
	require.Less(t, one.lone.Len(), 32)
	require.Equal(t, 100-one.lone.Len(), one.r.Kept[noMark])
	for i := range 10 {
		other.gatherLone(of(fmt.Sprint("other", i)), false)
	}
	require.Positive(t, other.lone.Len(), "each rule gets on with one candidate at least")
	require.LessOrEqual(t, s.names.Load(), int64(mostNames+2<<20), "all rules together")
	one.holdNames(-one.nameBytes)
	other.holdNames(-other.nameBytes)
	require.Zero(t, s.names.Load())
}

func TestWhatMayNotGoForNowIsLookedAtBeforeItsEvidenceEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ interval, grace time.Duration }{
		{time.Second, time.Second}, {5 * time.Second, time.Second}, {5 * time.Minute, 0}, {5 * time.Minute, time.Second},
		{5 * time.Minute, time.Minute}, {10 * time.Second, time.Hour}, {time.Hour, time.Minute},
	} {
		s := &Set{c: Config{Interval: c.interval}}
		x := &pass{sweep: &sweep{rule: &rule{Rule: rules.Rule{Grace: c.grace}}, set: s}}
		x.lookAgain(1)
		rest := c.interval / shortest // that the janitor leaves between two passes
		ends := longest(s.apart(c.grace))
		require.LessOrEqual(t, max(time.Until(x.again), rest), ends/2, c)
		require.Less(t, x.mayTake(&candidate{})+rest, ends, c)
		require.Less(t, x.mayTake(&candidate{alone: true})+rest, longest(c.interval), c)
	}
}

// A pass that deletes slowly leaves the rest to the next one, which looks at it before its evidence
// ends.
func TestASlowPassStopsBeforeTheEvidenceOfWhatIsLeftEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--enable-debug-command", "yes")
	client := func() *redis.Client { return redis.NewClient(server.Options()) }
	rule := session("")
	rule.Grace = time.Second
	r := newRigEvery(t, 30*time.Second, client(), client(), redis.NewClient(lease.Options(server.Options())), "", nil, rule)
	const orphans = reapOf + 10
	for i := range orphans + 20 {
		r.do("SET", fmt.Sprintf("session:%d", i), "old")
		if i >= orphans {
			r.do("SET", fmt.Sprintf("user:%d", i), 1)
		}
		r.do("SET", fmt.Sprintf("session:lives%d", i), "old")
		r.do("SET", fmt.Sprintf("user:lives%d", i), 1)
	}
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	marks := r.rdb.HGetAll(t.Context(), marksKey(r.layout, "sessions")).Val()
	require.Len(t, marks, orphans)
	r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen":`, f: func() { r.do("DEBUG", "SLEEP", "0.7") }})
	result := r.sweep("sessions")
	require.Equal(t, []int{reapOf, orphans - reapOf}, []int{result.Removed, result.Kept[capped]})
	for name, mark := range r.rdb.HGetAll(t.Context(), marksKey(r.layout, "sessions")).Val() {
		require.Equal(t, marks[name], mark)
	}
	waittest.Until(t, time.Millisecond, func() bool { return r.set.Stats().Keys == orphans })
}
