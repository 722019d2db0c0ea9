package gateway

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// The registry must hear only the truth: a claim means that the device is here, and an
// acknowledgement followed by a frame means that the device received it.

func TestADeviceThatGaveUpWaitingIsNotRegistered(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxConns = 1 })
	first := b.login(t, imei)
	first.reports()
	gone := b.dial(t) // it waits for a place
	gone.send(handshake(t, "490154203237518"))
	require.NoError(t, gone.Close())
	_ = first.Close()
	awaitCount(t, 1, b.metrics.handshakes.WithLabelValues("incomplete"))
	require.Len(t, b.registrar.all(), 1, "its word elsewhere may be newer")
	b.login(t, "352093081452251")
}

func TestDeadLettersAreCappedTightly(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	w := b.login(t, imei)
	junk := teltonika.AppendEnvelope(nil, []byte("\x08\x01"+strings.Repeat("\xff", 40)+"\x01"))
	pipe := b.rdb.Pipeline()
	for range deadMost + 500 {
		pipe.Do(t.Context(), "XADD", b.stream+DeadSuffix, "*", "raw", "")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	w.send(junk)
	w.expect("00000001")
	require.LessOrEqual(t, b.rdb.XLen(t.Context(), b.stream+DeadSuffix).Val(), int64(deadMost+200))
}

// Of two frames in one packet, each a TLS record of its own, the second was here before the first's
// acknowledgement, if out of the socket's sight.
func TestAFrameThatWasHereBeforeTheAcknowledgementProvesNothing(t *testing.T) {
	t.Parallel()
	for over, listens := range transports(t) {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			b := listening(t, listens)
			w, gather := b.gathers(t, over)
			gather.hold = true
			w.send(frame(t, 1))
			w.send(frame(t, 1))
			gather.flush(t)
			w.expect("0000000100000001")
			claim := b.registrar.all()[0]
			await(t, func() bool { _, n, _ := claim.counts(); return n == 1 })
			arrived, acknowledged, _ := claim.counts()
			require.Equal(t, 2, arrived)
			require.Equal(t, 1, acknowledged, "only the one behind which nothing waited")
			w.reports()
			await(t, func() bool { _, n, _ := claim.counts(); return n == 2 })
		})
	}
}
