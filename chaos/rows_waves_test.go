package chaos

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// waveRows cut off all replicas but the leader at one instant. Their beats are not in step, so
// their heartbeats end one after the other, over an interval.
var waveRows = []row{
	{38, "TwoOfThreeCutOffBriefly", false, 20, nil, wave{of: 3, away: briefly}.run},
	{38, "TwoOfThreeCutOff", false, 20, nil, wave{of: 3, away: long}.run},
	{38, "TenOfElevenCutOffBriefly", false, 20, nil, wave{of: 11, away: briefly}.run},
	{38, "TenOfElevenCutOff", false, 20, nil, wave{of: 11, away: long}.run},
	{38, "TenOfElevenCutOffTwice", false, 20, nil, wave{of: 11, away: briefly, again: true}.run},
	{38, "AllHoldersCutOffBesideIdleReplicas", false, 20, nil, wave{of: 3, away: briefly, idle: 4}.run},
	{38, "TwentyOfTwentyOneCutOffBriefly", false, 20, nil, wave{of: 21, away: briefly}.run},
	{38, "TwentyOfTwentyOneCutOff", false, 20, nil, wave{of: 21, away: long}.run},
}

// briefly is over before the doubt is, long outlasts it.
const briefly, long = harness.TTL * 11 / 10, harness.TTL * 3

type wave struct {
	of    int
	away  time.Duration
	again bool // a second wave, as soon as all have beaten
	idle  int  // so many further replicas hold nothing
}

// run expects that nothing goes within a grace period of the end of a heartbeat; the owners that
// are away for longer are swept, and heal.
func (k wave) run(w *environment) {
	met := &calm{}
	w.fault = met
	w.Start("one")
	var owners []mutable
	var ids []string
	for n := range k.of - 1 {
		o := embeddedOwner(w, n)
		owners, ids = append(owners, o), append(ids, o.id)
		harness.Lasting(harness.Interval / time.Duration(k.of-1)) // out of step
	}
	w.Spread(harness.Some(0, w.Fleet.Len()))
	for n := range k.idle {
		w.Start(fmt.Sprintf("idle-%d", n))
	}
	w.rest(ids...)
	w.Listened()
	w.looks()

	waves := 1
	if k.again {
		waves = 2
	}
	for n := range waves {
		if n > 0 {
			harness.Eventually(w.T, "all of them beat again", func() bool { return alive(w, ids) == len(ids) })
			harness.Lasting(harness.Interval)
		}
		var speak []func()
		for _, o := range owners {
			back, speaks := w.Outage(o.id), o.silence()
			speak = append(speak, func() { speaks(); back() })
		}
		harness.Lasting(k.away)
		met.hit(len(ids) - alive(w, ids))
		for _, s := range speak {
			s()
		}
	}
	v := w.judge(ids...)
	require.Equal(w.T, waves*len(owners), met.hits(), "not everybody fell silent: this run proves nothing")
	if k.away == briefly {
		require.Zero(w.T, v.Evicted(""))
	}
}

func alive(w *environment, ids []string) (n int) {
	for _, id := range ids {
		n += int(w.Exists(w.T.Context(), w.Heartbeat(id)).Val())
	}
	return n
}
