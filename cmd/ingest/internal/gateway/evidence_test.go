package gateway

import (
	"strings"
	"testing"
	"time"

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

func TestAFrameThatWasHereBeforeTheAcknowledgementProvesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	w := b.login(t, imei)
	// sent together: the second does not confirm the first's acknowledgement
	two := append(frame(t, 1), frame(t, 1)...)
	w.send(two)
	w.expect("0000000100000001")
	claim := b.registrar.all()[0]
	await(t, func() bool { _, n, _ := claim.counts(); return n == 1 })
	arrived, acknowledged, _ := claim.counts()
	require.Equal(t, 2, arrived)
	require.Equal(t, 1, acknowledged, "only the one behind which nothing waited")

	w.send(frame(t, 1))
	w.expect("00000001")
	await(t, func() bool { _, n, _ := claim.counts(); return n == 2 })
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

func TestPeekSeesBytesAndTheEndAndWaitsForNeither(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	b := &bench{addr: ln.Addr().String()}
	w := b.dial(t)
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	raw := rawConn(conn)
	bytes, end := peek(raw)
	require.False(t, bytes || end)
	w.send([]byte{1})
	require.Eventually(t, func() bool { bytes, end := peek(raw); return bytes && !end }, patience, time.Millisecond)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Eventually(t, func() bool { bytes, end := peek(raw); return !bytes && end }, patience, time.Millisecond)
}
