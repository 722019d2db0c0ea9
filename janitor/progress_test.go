package janitor_test

import (
	"context"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"
)

func TestAHeartbeatIsAliveUnlessItIsClearlyAbsent(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.must(f.Set(t.Context(), f.Heartbeat("expires"), "0/0", time.Minute))
		f.must(f.Set(t.Context(), f.Heartbeat("for ever"), "0/0", 0))
		f.must(f.RPush(t.Context(), f.Heartbeat("a list"), "x"))
		r := f.silentReplica("r1", nil)
		left, err := r.Heartbeats(t.Context(), []string{"expires", "for ever", "a list", "absent", "c\x00", "r1"})
		require.NoError(t, err)
		require.InDelta(t, 60, left["expires"].Seconds(), 20)
		delete(left, "expires")
		require.Equal(t, map[string]time.Duration{"for ever": beatTTL, "a list": beatTTL, "absent": 0, "r1": 0}, left)
	})
}

func TestAPassThatWasAskedForMayWantAnotherOneSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &scripted{}
		r := s.leader(f, nil)
		started := func() time.Time { return r.Status().Sweeps[0].Started }
		wants := func(in time.Duration) time.Time {
			rep := s.pass(r, Request{}, func(_ context.Context, p *Pass) error {
				p.RunAgain(time.Now().Add(in))
				return nil
			})
			return rep.Started
		}
		asked := wants(2 * time.Minute)
		pass(3 * time.Minute)
		require.Equal(t, 2*time.Minute, started().Sub(asked))
		// The next one is an hour after that: a further request does not postpone it.
		own := started()
		pass(30 * time.Minute)
		wants(50 * time.Minute)
		pass(31 * time.Minute)
		require.Equal(t, time.Hour, started().Sub(own))
	})
}
