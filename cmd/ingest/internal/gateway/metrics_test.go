package gateway

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestBytesDeadLettersAndTheTimeOfAcknowledgementsAreCounted(t *testing.T) {
	t.Parallel()
	var reg *prometheus.Registry
	b := setup(t, redistest.Shared(t), func(c *Config) { reg = c.Registerer.(*prometheus.Registry) })
	w := b.login(t, imei)
	sent := len(handshake(imei))
	for range 3 {
		f := frame(2)
		sent += len(f)
		w.send(f)
		w.expect("00000002")
	}
	dead := unhex(t, find(t, "neg_amplify").Hex)
	w.send(dead)
	w.expect("00000002")
	awaitCount(t, sent+len(dead), b.metrics.in)
	awaitCount(t, 1+4*4, b.metrics.out)
	awaitCount(t, 1, b.metrics.dead)
	await(t, func() bool { return testutil.ToFloat64(b.frames("8E", "dead")) == 1 })

	families, err := reg.Gather()
	require.NoError(t, err)
	found := false
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				require.NotEqual(t, imei, l.GetValue(), "a series for each device would be millions")
			}
			if f.GetName() == "ingest_acknowledgement_seconds" {
				found = true
				require.Equal(t, uint64(4), m.Histogram.GetSampleCount())
			}
		}
	}
	require.True(t, found)
}
