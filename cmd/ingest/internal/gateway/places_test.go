package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func (g *Gateway) unproven() int { _, plain := g.places.Size(); return plain }

func (g *Gateway) unidentified() int { all, _ := g.hall.Size(); return all }

// pressed sends p and ignores the result.
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
		handshake(imei)[:9],       // never sends the rest
		[]byte("\x00\x0fgarbage"), // no digits
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		unhex(t, find(t, "neg_tls_hello").Hex),
		append(handshake("490154203237518"), endless...), // 4 GiB more, all from one device
	}
	const hostile, devices = 1000, 50
	sockets := make([]*wire, hostile)
	for i := range sockets {
		sockets[i] = b.pressed(t, kinds[i%len(kinds)])
	}
	for i := range devices {
		w := b.login(t, fmt.Sprintf("35630704244%04d", i))
		w.send(frame(2))
		w.expect("00000002")
	}
	require.Len(t, b.turns, 0, "nobody holds a place who is not being registered")
	awaitCount(t, hostile/2, b.metrics.handshakes.WithLabelValues("refused"))
	b.awaitEnds(t, 0, endCrowded)
	for _, w := range sockets {
		_ = w.Close()
	}
	await(t, func() bool { return b.Connections() == devices && b.unidentified() == 0 })
}

func TestADeviceIsServedWhateverAFloodSays(t *testing.T) {
	t.Parallel()
	invented := func(n int) []byte { return handshake(fmt.Sprintf("99%013d", n)) }
	for name, flood := range map[string]func(n int) []byte{
		"nothing":                  func(int) []byte { return nil },
		"an IMEI":                  invented,
		"an IMEI and half a frame": func(n int) []byte { return append(invented(n), frame(1)[:20]...) },
		"an IMEI and one record":   func(n int) []byte { return append(invented(n), frame(1)...) },
		"an IMEI and empty answers": func(n int) []byte {
			return append(invented(n), unhex(t, strings.Repeat("00000000000000080c01060000000001000033d1", 3))...)
		},
		"an IMEI and a keep-alive": func(n int) []byte { return append(invented(n), 0xFF) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const slots = 64
			b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxConns, c.MaxUnidentified = slots, slots/2 })
			old := b.login(t, imei)
			old.reports()
			serve := func(imei string) {
				w := b.login(t, imei)
				w.reports()
				_ = w.Close()
			}
			n := 0
			from := func(address string, sockets int) {
				for range sockets {
					n++
					w := b.dialFrom(t, address)
					_, _ = w.Write(flood(n)) // it may be closed already
				}
			}
			from("127.0.2.2", slots)
			serve("352093081452251")
			for i := range 10 {
				from(fmt.Sprint("127.0.1.", i+1), slots)
			}
			serve("490154203237518")
			old.reports()
			require.LessOrEqual(t, b.Connections(), slots+slots/2)
			require.Positive(t, testutil.ToFloat64(b.metrics.disconnects.WithLabelValues(endCrowded)), "the alert sees it")
		})
	}
}

func TestADeviceHasAMinuteForItsFirstFrameAndThenAnHour(t *testing.T) {
	t.Parallel()
	short := func(c *Config) { c.FirstFrame = time.Minute }
	manyInBubble(t, nil, short, func(t *testing.T, g *Gateway, join func() *timed) {
		talks, reports := join(), join()
		talks.login(t)
		reports.comes(t, "352093081452251")
		for range 5 {
			<-time.After(10 * time.Second)
			talks.write(t, []byte{0xFF})
		}
		reports.stores(t)
		talks.endsAfter(t, time.Minute)
		requireCount(t, 1, g.metrics.disconnects.WithLabelValues(endUnproven))
		reports.endsAfter(t, 50*time.Second+idleTime)
	})
}

// placed returns the socket of a device that has earned its place.
func placed(t *testing.T, join func() *timed, imei string) *timed {
	t.Helper()
	s := join()
	s.comes(t, imei)
	s.stores(t)
	return s
}

func TestADeviceWithoutAPlaceWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	one := func(c *Config) { c.MaxConns, c.MaxUnidentified = 1, 1 }
	manyInBubble(t, nil, one, func(t *testing.T, g *Gateway, join func() *timed) {
		first := placed(t, join, imei)
		late := join()
		late.write(t, handshake("352093081452251"))
		late.endsAfter(t, placeTime)
		synctest.Wait()
		requireCount(t, 1, g.metrics.disconnects.WithLabelValues(endCrowded))
		second, third := join(), (*timed)(nil)
		second.write(t, handshake("352093081452251"))
		<-time.After(time.Second)
		third = join() // whoever comes later takes the hall, and the one that waits ends at once
		second.endsAfter(t, time.Second)
		synctest.Wait()
		require.Len(t, g.running, 2, "first and third")
		third.write(t, handshake("490154203237518"))
		<-time.After(time.Second)
		require.NoError(t, first.Close())
		require.Equal(t, []byte{1}, third.read(t, 1))
	})
}

func TestWhatKeepsAPlaceIsRecordsOfLate(t *testing.T) {
	t.Parallel()
	two := func(c *Config) { c.MaxConns = 2 }
	manyInBubble(t, nil, two, func(t *testing.T, g *Gateway, join func() *timed) {
		silent, reports := placed(t, join, imei), placed(t, join, "352093081452251")
		for range 3 { // more than an hour
			<-time.After(25 * time.Minute)
			silent.write(t, []byte{0xFF})
			reports.stores(t)
		}
		require.Equal(t, 1, g.unproven())
		placed(t, join, "490154203237518")
		got, err := io.ReadAll(silent)
		require.NoError(t, err)
		require.Empty(t, got)
		reports.stores(t)
	})
}

func TestASlowDeviceBehindABalancerIsServedDuringAFlood(t *testing.T) {
	t.Parallel()
	few := func(c *Config) { c.MaxConns, c.MaxUnidentified = 16, 16 }
	balancer := func(g *Gateway, ln net.Listener) net.Listener {
		return g.Proxied(ln, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")})
	}
	wrappedInBubble(t, nil, few, balancer, func(t *testing.T, g *Gateway, join func() *timed) {
		comes := func(from string) *timed {
			s := join()
			s.write(t, []byte("PROXY TCP4 "+from+" 192.0.2.9 4711 5027\r\n"))
			synctest.Wait()
			return s
		}
		slow := comes("203.0.113.1")
		slower := join() // the balancer itself is slow
		for range 100 {
			comes("198.51.100.7")
		}
		require.Zero(t, time.Since(slow.began), "the flood makes room for itself at once")
		slow.comes(t, imei)
		slower.write(t, append([]byte("PROXY TCP4 203.0.113.2 192.0.2.9 4711 5027\r\n"), handshake("352093081452251")...))
		require.Equal(t, []byte{1}, slower.read(t, 1))
	})
}

// Each socket of the flood is in the middle of its registration when its place is taken, and
// would end only a second later.
func TestADeviceWaitsForTheRegistrationOfNoFlood(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(c *Config) { c.MaxConns = 10 }, func(t *testing.T, g *Gateway, join func() *timed) {
		began := time.Now()
		for i := range 200 {
			s := join()
			s.registrar.land = false
			s.write(t, handshake(fmt.Sprintf("99%013d", i)))
			synctest.Wait()
		}
		require.Zero(t, time.Since(began))
		device := join()
		device.login(t)
		require.Equal(t, time.Second, time.Since(began), "as without Redis")
		synctest.Wait()
		require.Len(t, g.running, 10, "the others have ended")
		require.Equal(t, 10, g.Connections())
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
			s.write(t, handshake(fmt.Sprintf("35630704244%04d", i)))
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
	b.turns <- struct{}{} // somebody's, for ever
	w := b.dial(t)
	w.send(handshake(imei))
	await(t, func() bool { return b.Connections() == 1 && b.unidentified() == 0 })
	b.stop()
	w.expectEnd()
	require.Empty(t, b.registrar.all())
	b.awaitEnds(t, 1, endDraining)
}
