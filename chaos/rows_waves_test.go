package chaos

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// waveRows cut off all replicas but the leader at one instant. Their beats are not in step, so
// their heartbeats end one after the other, over an interval.
var waveRows = []row{
	{38, "TwoOfThreeCutOffBriefly", false, 20, nil, wave(3, briefly)},
	{38, "TwoOfThreeCutOff", false, 20, nil, wave(3, long)},
	{38, "TenOfElevenCutOffBriefly", false, 20, nil, wave(11, briefly)},
	{38, "TenOfElevenCutOff", false, 20, nil, wave(11, long)},
	{38, "TwentyOfTwentyOneCutOffBriefly", false, 20, nil, wave(21, briefly)},
	{38, "TwentyOfTwentyOneCutOff", false, 20, nil, wave(21, long)},
}

// briefly is over before the hold is, long outlasts it.
const briefly, long = harness.TTL * 11 / 10, harness.TTL * 3

// wave expects the hold before the first eviction. While it lasts nothing goes; the owners that are
// still away after it are swept, and heal.
func wave(replicas int, away time.Duration) func(w *environment) {
	return func(w *environment) {
		met := &calm{}
		w.fault = met
		w.Start("one")
		var owners []mutable
		var ids []string
		for n := range replicas - 1 {
			o := embeddedOwner(w, n)
			owners, ids = append(owners, o), append(ids, o.id)
			harness.Lasting(harness.Interval / time.Duration(replicas-1)) // out of step
		}
		w.Spread(harness.Some(0, w.Fleet.Len()))
		w.rest(ids...)
		w.Listened()
		w.looks()

		var speak []func()
		for _, o := range owners {
			back, speaks := w.Outage(o.id), o.silence()
			speak = append(speak, func() { speaks(); back() })
		}
		harness.Lasting(away)
		for _, id := range ids {
			met.hit(1 - int(w.Exists(w.T.Context(), w.Heartbeat(id)).Val()))
		}
		for _, s := range speak {
			s()
		}
		v := w.judge(ids...)
		require.Equal(w.T, len(owners), met.hits(), "not everybody fell silent: this run proves nothing")
		held, known := trippedAt(w, v)
		require.True(w.T, known, "the breaker did not trip")
		for _, b := range v.Batches {
			require.False(w.T, len(b.IMEIs) > 0 && b.At.Before(held.Add(harness.GracePeriod)),
				"%s was swept %v after the hold began", b.Owner, b.At.Sub(held))
		}
		if away == briefly {
			require.Zero(w.T, v.Evicted(""))
		}
	}
}
