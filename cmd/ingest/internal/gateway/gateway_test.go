package gateway

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheNewestSocketOfADeviceWins(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	old := b.login(t, imei)
	other := b.login(t, "352093081452251")
	now := b.login(t, imei)
	old.expectEnd()
	<-b.registrar.all()[0].released
	for _, w := range []*wire{other, now} {
		w.reports()
	}
	_, released := b.registrar.all()[2].counts()
	require.Zero(t, released)
	b.awaitEnds(t, 1, endMoved)
	require.Equal(t, 2, b.Connections())

	_ = now.Close() // and its own close counts
	<-b.registrar.all()[2].released
	await(t, func() bool { return b.Connections() == 1 })
}

func TestWithoutRedisNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := setup(t, server)
	w := b.login(t, imei)
	w.reports()

	server.Kill()
	w.send(frame(2))
	w.expectEnd()
	<-b.registrar.all()[0].released
	awaitCount(t, 1, b.frames("8", "failed"))
	touched, _ := b.registrar.all()[0].counts()
	require.Equal(t, 2, touched)
	b.login(t, imei) // devices are taken all the same
}

func TestARefusedWriteStoresNothingOfTheFrame(t *testing.T) {
	t.Parallel()
	// Full: the second record is refused like the first, and so is their transaction.
	server := redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	b := setup(t, server)
	w := b.login(t, imei)
	w.send(frame(2))
	w.expectEnd()
	require.Empty(t, b.entries(t, b.stream))
	awaitCount(t, 1, b.frames("8", "failed"))
}

func TestAWrongCheckDigitIsCountedAndAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	b.login(t, "356307042441014")
	b.login(t, imei)
	awaitCount(t, 1, b.metrics.luhn)
	awaitCount(t, 2, b.metrics.handshakes.WithLabelValues("accepted"))
}

func TestTheStreamsAreCapped(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxLen = 100 })
	b.rate = rate{} // one device is as good as many
	w := b.login(t, imei)
	for range 20 {
		w.send(frame(50))
		w.expect("00000032")
	}
	// The cap is approximate: Redis trims whole nodes of a hundred entries.
	require.Less(t, b.rdb.XLen(t.Context(), b.stream).Val(), int64(300))
}

func TestStoppingFinishesTheFrameUnderWay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := setup(t, server)
	idle, fresh, busy := b.login(t, imei), b.dial(t), b.login(t, "352093081452251")
	partial := b.login(t, "490154203237518")
	partial.send(frame(1)[:20])
	await(t, func() bool { return b.Connections() == 4 })
	server.Stop()
	busy.send(frame(3))
	busyClaim := b.registrar.all()[1]
	await(t, func() bool { n, _ := busyClaim.counts(); return n == 1 })

	b.stop()
	for _, w := range []*wire{idle, fresh, partial} {
		w.expectEnd()
	}
	_, err := net.Dial("tcp", b.addr)
	require.Error(t, err)
	server.Cont()
	busy.expect("00000003")
	busy.expectEnd()
	require.NoError(t, <-b.served)
	b.served <- nil // for the clean-up
	for _, c := range b.registrar.all() {
		_, released := c.counts()
		require.Equal(t, 1, released)
	}
	require.Zero(t, b.Connections())
}

func TestStoppingGivesUpWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := setup(t, server, func(c *Config) { c.Drain = 20 * time.Millisecond })
	w := b.login(t, imei)
	server.Stop()
	defer server.Cont()
	w.send(frame(3))
	await(t, func() bool { n, _ := b.registrar.all()[0].counts(); return n == 1 })
	b.stop()
	w.expectEnd()
	require.NoError(t, b.client.Close()) // what the program does when its time is up
	require.NoError(t, <-b.served)
	b.served <- nil
	<-b.registrar.all()[0].released
}
