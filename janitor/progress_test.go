package janitor_test

import (
	"context"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"
)

func TestAHeartbeatIsAliveUnlessItIsClearlyAbsent(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.must(f.Set(f.Context(), f.Heartbeat("expires"), "0/0", time.Minute))
		f.do("SET", f.Heartbeat("for ever"), "0/0")
		f.do("RPUSH", f.Heartbeat("a list"), "x")
		r := f.silentReplica("r1", nil)
		left, err := r.Heartbeats(f.Context(), []string{"expires", "for ever", "a list", "absent", "c\x00", "r1"})
		require.NoError(f, err)
		require.InDelta(f, 60, left["expires"].Seconds(), 20)
		delete(left, "expires")
		require.Equal(f, map[string]time.Duration{"for ever": beatTTL, "a list": beatTTL, "absent": 0, "r1": 0}, left)
	})
}

func TestAPassThatWasAskedForMayWantAnotherOneSoon(t *testing.T) {
	inBubble(t, func(f *fleet) {
		s := f.scripted()
		started := func() time.Time { return s.Status().Sweeps[0].Started }
		wants := func(in time.Duration) time.Time {
			rep := s.asked(Request{}, func(_ context.Context, p *Pass) error {
				p.RunAgain(time.Now().Add(in))
				return nil
			})
			return rep.Started
		}
		asked := wants(2 * time.Minute)
		pass(3 * time.Minute)
		require.Equal(f, 2*time.Minute, started().Sub(asked))
		// The next one is an hour after that: a further request does not postpone it.
		own := started()
		pass(30 * time.Minute)
		wants(50 * time.Minute)
		pass(31 * time.Minute)
		require.Equal(f, time.Hour, started().Sub(own))
	})
}
