package availability

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
)

func TestAMassFailureHoldsOnceAndThenWhoIsSilentStillGoes(t *testing.T) {
	states := []State{online("fresh")}
	for i := range waveLeast {
		states = append(states, silent(fmt.Sprint("m", i)))
	}
	swept(t, states, func(l *leader) {
		l.sweeps(janitor.Held)
		_, err := l.Heartbeat(l.ctx, "m0") // it was ours: this one comes back meanwhile
		l.NoError(err)
		l.sweeps(janitor.Held, "it is not over")
		past := time.Now().Add(-time.Millisecond).UnixMilli()
		l.redis("HSET", l.keys.noted(), heldUntil, past)
		report := l.offline()
		l.Equal(janitor.Done, report.Outcome)
		l.Equal(waveLeast-1, report.Evicted)
		l.same()
		l.offline()
		l.False(l.client.HExists(l.ctx, l.keys.noted(), heldUntil).Val(), "the next wave holds again")
	})
}

// Apps ping out of step, so those that are cut off at one instant become silent one after the
// other.
func TestAMassFailureHoldsBeforeTheFirstOfItsWaveGoesOffline(t *testing.T) {
	const first = waveLeast / 4
	stale := newFake().settings.StaleAfter
	for name, test := range map[string]struct {
		others  time.Duration // for how long they have not been heard of
		outcome janitor.Outcome
		evicted int
	}{
		"the others were cut off with the first": {stale - 5*time.Second, janitor.Held, 0},
		"the others have missed a ping":          {2 * newFake().settings.PingInterval, janitor.Done, first},
	} {
		t.Run(name, func(t *testing.T) {
			var states []State
			for i := range waveLeast {
				s := online(fmt.Sprint("m", i))
				if s.Seen = s.Seen.Add(-test.others); i < first {
					s = silent(s.ID)
				}
				states = append(states, s)
			}
			swept(t, states, func(l *leader) {
				report := l.offline()
				l.Equal(test.outcome, report.Outcome)
				l.Equal(test.evicted, report.Evicted)
			})
		})
	}
}

func TestOverdueIsWhoMissedAPingAndMayBeOfTheSameWave(t *testing.T) {
	for _, test := range []struct{ stale, ping, overdue time.Duration }{
		{120, 30, 90}, {45, 30, 30}, {60, 30, 30},
	} {
		require.Equal(t, test.overdue, overdue(Settings{StaleAfter: test.stale, PingInterval: test.ping}))
	}
}
