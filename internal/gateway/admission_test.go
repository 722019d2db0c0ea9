package gateway

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// pressed sends without looking at what becomes of it.
func (b *bench) pressed(t *testing.T, p []byte) *wire {
	w := b.dial(t)
	_, _ = w.Write(p) // it may be refused while it speaks
	return w
}

func TestAThousandHostileSocketsDelayNoDevice(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	endless := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, 0xFFFFFFFF)
	kinds := [][]byte{
		nil,                       // says nothing
		handshake(t, imei)[:9],    // says the rest never
		[]byte("\x00\x0fgarbage"), // no digits
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		unhex(t, find(t, "neg_tls_hello").Hex),
		append(handshake(t, "490154203237518"), endless...), // 4 GiB to come, of one device at that
	}
	const hostile, devices = 1000, 50
	sockets := make([]*wire, hostile)
	for i := range sockets {
		sockets[i] = b.pressed(t, kinds[i%len(kinds)])
	}
	for i := range devices {
		w := b.login(t, fmt.Sprintf("35630704244%04d", i))
		w.send(frame(t, 2))
		w.expect("00000002")
	}
	require.Len(t, b.admission.slots, 0, "nobody holds a place who is not being registered")
	awaitCount(t, hostile/2, b.metrics.handshakes.WithLabelValues("refused"))
	awaitCount(t, 0, b.metrics.disconnects.WithLabelValues(endCrowded))
	for _, w := range sockets {
		_ = w.Close()
	}
	await(t, func() bool { return b.Connections() == devices && b.admission.count() == 0 })
}

func TestASilentSocketMakesRoomAfterThreeSecondsWhenThereAreTooMany(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(c *Config) { c.MaxUnidentified = 2 }, func(t *testing.T, g *Gateway, join func() *timed) {
		first := join()
		<-time.After(time.Second)
		second := join()

		third := join() // is let in as the first is shown out
		require.Equal(t, 3*time.Second, time.Since(first.began))
		first.endsAfter(t, 3*time.Second)
		third.login(t)
		require.Equal(t, 3*time.Second, time.Since(first.began))

		fourth := join() // a device has made room: nobody need go
		fourth.login(t)
		require.Equal(t, 3*time.Second, time.Since(first.began))
		second.endsAfter(t, 15*time.Second) // by its handshake's own deadline
		require.Equal(t, 1.0, testutil.ToFloat64(g.metrics.disconnects.WithLabelValues(endCrowded)))
	})
}

func TestDevicesWaitForOneAnothersRegistrationAndNoneIsRefused(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(c *Config) { c.MaxRegistering = 2 }, func(t *testing.T, _ *Gateway, join func() *timed) {
		var all []*timed
		for i := range 5 {
			s := join()
			if i == 0 {
				s.registrar.land = false // each is answered after a second, as without Redis
			}
			s.write(t, handshake(t, fmt.Sprintf("35630704244%04d", i)))
			all = append(all, s)
		}
		for second := 1; second <= 3; second++ {
			synctest.Wait()
			require.Len(t, all[0].registrar.all(), min(2*second, len(all)))
			<-time.After(time.Second)
		}
		for _, s := range all {
			require.Equal(t, []byte{1}, s.read(t, 1))
		}
		require.Equal(t, 3*time.Second, time.Since(all[0].began))
	})
}

func TestADeviceThatWaitsToBeRegisteredIsLetGoWhenTheReplicaStops(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxRegistering = 1; c.Drain = patience })
	b.admission.slots <- struct{}{} // somebody's, for ever
	w := b.dial(t)
	w.send(handshake(t, imei))
	await(t, func() bool { return b.Connections() == 1 && b.admission.count() == 0 })
	b.stop()
	w.expectEnd()
	require.Empty(t, b.registrar.all())
	awaitCount(t, 1, b.metrics.disconnects.WithLabelValues(endDraining))
}
