package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reads is a reply that took rtt and came at now, from a server whose clock is ahead of now's.
func (k *clock) reads(now time.Time, rtt, ahead time.Duration) {
	k.read(now.Add(ahead-rtt/2).UnixMilli(), now.Add(-rtt), now)
}

func TestTheShortestRoundTripOfAMinuteCounts(t *testing.T) {
	t.Parallel()
	var k clock
	require.False(t, k.agrees(anInstant.UnixMilli(), anInstant), "nothing is known")
	ahead := func() time.Duration { return time.Duration(k.when(anInstant)-anInstant.UnixMilli()) * time.Millisecond }
	for _, step := range []struct{ after, rtt, ahead, want time.Duration }{
		{0, 100, 5000, 5000}, {1000, 20, 5030, 5030}, {2000, 60, 5060, 5030}, {3000, 20, 5010, 5010},
		{500, 10, 5020, 5010}, // was under way for long
		{64_000, 60, 5040, 5040},
		{65_000, 2000, 5990, 5040}, // may have been late on one of its ways
		{66_000, 200, 9000, 9000},
		{67_000, 200, 1000, 1000},
	} {
		ms := time.Millisecond
		k.reads(anInstant.Add(step.after*ms), step.rtt*ms, step.ahead*ms)
		require.Equal(t, step.want*ms, ahead(), "after %d", step.after)
	}
	require.EqualValues(t, 8000, k.back)
	now := anInstant.Add(70 * time.Second)
	for differ, agrees := range map[int64]bool{-1001: false, -1000: true, 1000: true, 1001: false} {
		require.Equal(t, agrees, k.agrees(k.when(now)+differ, now))
	}
}

func TestAHandshakeGrowsNoYounger(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return anInstant.Add(time.Duration(s) * time.Second) }
	for name, ahead := range map[string]time.Duration{
		"this machine was suspended, or the server's clock steps on": time.Hour,
		"the server's clock steps back":                              -time.Hour,
		"it does not step":                                           0,
	} {
		var k clock
		k.reads(at(0), 0, 0)
		older, newer := &Claim{made: at(1)}, &Claim{made: at(11)}
		k.stamp(older)
		require.Equal(t, at(1).UnixMilli(), k.handshake(older))
		require.Equal(t, at(11).UnixMilli(), k.handshake(newer))
		k.reads(at(12), 0, ahead)
		k.stamp(newer) // after the first reply
		require.LessOrEqual(t, k.handshake(older), at(1).UnixMilli(), name)
		require.Equal(t, at(11).Add(ahead).UnixMilli(), k.handshake(newer), name)
		k.reads(at(13), 0, ahead)
		k.stamp(newer)
		require.Equal(t, at(11).Add(ahead).UnixMilli(), k.handshake(newer), name)
		require.GreaterOrEqual(t, k.handshake(newer)-k.handshake(older), int64(10_000), name)
	}
}
