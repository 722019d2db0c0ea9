package gateway

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// The registry must hear only the truth: a claim means that the device is here.
func TestADeviceThatGaveUpWaitingIsNotRegistered(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxConns = 1 })
	first := b.login(t, imei)
	first.reports()
	gone := b.dial(t) // it waits for a place
	gone.send(handshake("490154203237518"))
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
