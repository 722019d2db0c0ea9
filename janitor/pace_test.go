package janitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaceOwesRestForWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		share float64
		calls []time.Duration // one after the other, each after all rest was taken
		rests []time.Duration
	}{
		"a quarter rests three times as long":      {0.25, []time.Duration{2 * time.Millisecond}, []time.Duration{6 * time.Millisecond}},
		"the whole share never rests":              {1, []time.Duration{time.Second}, []time.Duration{0}},
		"too short to bother is saved up":          {0.5, ms(0.4, 0.4, 0.4), ms(0, 0, 1.2)},
		"a stall is atoned for by its limit alone": {0.5, []time.Duration{time.Minute}, []time.Duration{paceLimit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, now := newPace(c.share), time.Now()
			for i, call := range c.calls {
				rest := p.owe(call, now)
				require.InDelta(t, c.rests[i].Seconds(), rest.Seconds(), 1e-6)
				now = now.Add(rest)
			}
		})
	}
}

func TestPaceIsSharedByAllWhoWork(t *testing.T) {
	t.Parallel()
	p, now := newPace(0.5), time.Now()
	require.Equal(t, 10*time.Millisecond, p.owe(10*time.Millisecond, now))
	require.Equal(t, 20*time.Millisecond, p.owe(10*time.Millisecond, now), "the second waits for the first's rest too")
	require.Equal(t, 10*time.Millisecond, p.owe(10*time.Millisecond, now.Add(time.Hour)), "old rest is no credit")
}

func ms(all ...float64) []time.Duration {
	var d []time.Duration
	for _, f := range all {
		d = append(d, time.Duration(f*float64(time.Millisecond)))
	}
	return d
}
