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
	swept(t, states, func(t *testing.T, l *leader) {
		require.Equal(t, janitor.Held, l.offline().Outcome)
		_, err := l.Heartbeat(t.Context(), "m0") // it was ours: this one comes back meanwhile
		require.NoError(t, err)
		require.Equal(t, janitor.Held, l.offline().Outcome, "it is not over")
		past := time.Now().Add(-time.Millisecond).UnixMilli()
		require.NoError(t, l.client.HSet(t.Context(), l.keys.noted(), heldUntil, past).Err())
		report := l.offline()
		require.Equal(t, janitor.Done, report.Outcome)
		require.Equal(t, waveLeast-1, report.Evicted)
		l.same()
		l.offline()
		require.False(t, l.client.HExists(t.Context(), l.keys.noted(), heldUntil).Val(), "the next wave holds again")
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
			swept(t, states, func(t *testing.T, l *leader) {
				report := l.offline()
				require.Equal(t, test.outcome, report.Outcome)
				require.Equal(t, test.evicted, report.Evicted)
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
