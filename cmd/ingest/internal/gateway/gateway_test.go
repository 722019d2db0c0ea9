package gateway

import (
	"net"
	"testing"

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

func TestAFrameThatRedisDoesNotTakeIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"Redis is away": true, "Redis is full": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := setup(t, server)
			w := b.login(t, imei)
			w.reports()
			if away {
				server.Kill()
			} else {
				require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			}
			w.send(frame(2))
			w.expectEnd()
			<-b.registrar.all()[0].released
			awaitCount(t, 1, b.frames("8", "failed"))
			touched, _ := b.registrar.all()[0].counts()
			require.Equal(t, 2, touched)
			b.login(t, imei) // devices are taken all the same
			if !away {
				require.Len(t, b.entries(t, b.stream), 1, "nothing of the frame is stored")
			}
		})
	}
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
	dead, pipe := b.stream+DeadSuffix, b.rdb.Pipeline()
	for range 500 {
		pipe.Do(t.Context(), "XADD", dead, "*", "raw", "")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	w := b.login(t, imei)
	for range 20 {
		w.send(frame(50))
		w.expect("00000032")
	}
	w.send(junk)
	w.expect("00000001")
	for _, stream := range []string{b.stream, dead} {
		// The cap is approximate: Redis trims whole nodes of a hundred entries.
		require.Less(t, b.rdb.XLen(t.Context(), stream).Val(), int64(300))
	}
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
