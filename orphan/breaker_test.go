package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
)

// While the breaker holds the rule, what comes to life again loses its mark.
func TestARuleThatIsHeldByItsBreakerIsLookedAt(t *testing.T) {
	both(t, session, func(r *rig) {
		for i := range 30 {
			r.do("SET", fmt.Sprintf("%ssession:%d", r.p, i), "old")
		}
		r.swept("sessions", "held mass_failure: 30 waiting")
		r.run("SET P:user:7 1")
		require.Equal(r, heldMassFailure, r.sweep("sessions").Reason)
		require.Equal(r, int64(29), r.rdb.HLen(r.Context(), marksKey(r.layout, "sessions")).Val())
		r.run("DEL P:user:7")
		r.pass("sessions", time.Minute)
		r.run("HDEL P:orphan:state:sessions held_until")
		require.Equal(r, 29, r.sweep("sessions").Removed)
		r.there("P:session:7")
	})
}

// What is somebody else's is no candidate.
func TestTheBreakerDoesNotCountWhatIsSomebodyElses(t *testing.T) {
	both(t, session+"  only: {user: integer}\n", func(r *rig) {
		for i := range 30 {
			for _, name := range []string{"", "x", "y"} {
				r.do("SET", fmt.Sprintf("%ssession:%s%d", r.p, name, i), "old")
			}
		}
		require.Equal(r, heldMassFailure, r.sweep("sessions").Reason)
	})
}

// A pass that fails behind its marks and before the breaker must not hide from the next how many
// are new.
func TestTheBreakerCountsWhatAFailedPassHasMarked(t *testing.T) {
	both(t, session, func(r *rig) {
		for i := range 40 {
			r.do("SET", fmt.Sprintf("%ssession:%d", r.p, i), "old")
		}
		fails := r.on("info", &hook{refuse: true, after: 1})
		require.Equal(r, janitor.Failed, r.sweep("sessions").Outcome)
		require.Equal(r, 1, fails.hits)
		r.pass("sessions", time.Minute)
		require.Equal(r, heldMassFailure, r.sweep("sessions").Reason)
		r.there("P:session:1")
	})
}

func TestTooManyNewlyCondemnedHoldTheRuleOnce(t *testing.T) {
	both(t, session+"  cap: 8\n", func(r *rig) {
		for i := range 40 {
			r.do("SET", fmt.Sprintf("%ssession:%d", r.p, i), "old")
			if i >= 21 {
				r.do("SET", fmt.Sprintf("%suser:%d", r.p, i), "1")
			}
		}
		r.swept("sessions", "held mass_failure: 19 alive, 21 waiting")
		r.pass("sessions", time.Minute)
		require.Equal(r, janitor.Held, r.sweep("sessions").Outcome, "still")
		r.do("HINCRBY", stateKey(r.layout, "sessions"), "held_until", -time.Minute.Milliseconds())
		r.swept("sessions", "19 alive, 13 cap, 8 removed")
		require.Equal(r, 8, r.sweep("sessions").Removed)
		require.Equal(r, 5, r.sweep("sessions").Removed)
	})
}

func TestTheBreakerHoldsOnceAlsoWhenThereAreMoreThanMarks(t *testing.T) {
	both(t, session+"  cap: 2\n", func(r *rig) { // 20 marks
		for i := range 100 {
			r.do("SET", fmt.Sprintf("%ssession:%d", r.p, i), "old")
		}
		r.swept("sessions", "held mass_failure: 80 marks, 20 waiting")
		r.pass("sessions", time.Hour)
		r.run("HSET P:orphan:state:sessions held_until @ms-1s")
		require.Equal(r, 2, r.sweep("sessions").Removed)
		require.Equal(r, 2, r.sweep("sessions").Removed, "it is not held again")
		for i := range 90 {
			r.do("SET", fmt.Sprintf("%suser:%d", r.p, i), "1")
		}
		r.sweep("sessions")
		for i := range 90 {
			r.do("DEL", fmt.Sprintf("%suser:%d", r.p, i))
		}
		require.Equal(r, "mass_failure", r.sweep("sessions").Reason, "another wave")
	})
}
