package gateway

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func (g *Gateway) unproven() int { _, plain := g.places.Size(); return plain }

func (g *Gateway) unidentified() int { all, _ := g.hall.Size(); return all }

func TestADeviceIsServedWhateverAFloodSays(t *testing.T) {
	t.Parallel()
	invented := func(n int) []byte { return handshake(fmt.Sprintf("99%013d", n)) }
	for name, flood := range map[string]func(n int) []byte{
		"nothing":                  func(int) []byte { return nil },
		"half an IMEI":             func(n int) []byte { return invented(n)[:9] },
		"an IMEI":                  invented,
		"an IMEI and half a frame": func(n int) []byte { return append(invented(n), frame(1)[:20]...) },
		"an IMEI and one record":   func(n int) []byte { return append(invented(n), frame(1)...) },
		"an IMEI and empty answers": func(n int) []byte {
			return append(invented(n), bytes.Repeat(response(c12, ""), 3)...)
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
					w := b.dial(t, address)
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
			await(t, func() bool { return len(b.turns) == 0 }) // those who are not being registered hold none
			require.LessOrEqual(t, b.Connections(), slots+slots/2)
			require.Positive(t, testutil.ToFloat64(b.metrics.disconnects.WithLabelValues(endCrowded)), "the alert sees it")
		})
	}
}

func TestADeviceWithoutAPlaceWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	one := func(c *Config) { c.MaxConns, c.MaxUnidentified = 1, 1 }
	manyInBubble(t, one, func(t *testing.T, g *bubble) {
		first := g.join().begins(imei)
		late := g.join()
		late.send(handshake("352093081452251"))
		late.endsAfter(placeTime)
		synctest.Wait()
		requireCount(t, 1, g.metrics.disconnects.WithLabelValues(endCrowded))
		second, third := g.join(), (*timed)(nil)
		second.send(handshake("352093081452251"))
		<-time.After(time.Second)
		third = g.join() // whoever comes later takes the hall, and the one that waits ends at once
		second.endsAfter(time.Second)
		synctest.Wait()
		require.Len(t, g.running, 2, "first and third")
		third.send(handshake("490154203237518"))
		<-time.After(time.Second)
		require.NoError(t, first.Close())
		third.expect("01")
	})
}

func TestWhatKeepsAPlaceIsRecordsOfLate(t *testing.T) {
	t.Parallel()
	two := func(c *Config) { c.MaxConns = 2 }
	manyInBubble(t, two, func(t *testing.T, g *bubble) {
		silent, reports := g.join().begins(), g.join().begins(otherIMEI)
		for range 3 { // more than an hour
			<-time.After(25 * time.Minute)
			silent.send([]byte{0xFF})
			reports.reports()
		}
		require.Equal(t, 1, g.unproven())
		g.join().begins("490154203237518")
		silent.expectEnd()
		reports.reports()
	})
}

func TestASlowDeviceBehindABalancerIsServedDuringAFlood(t *testing.T) {
	t.Parallel()
	few := func(c *Config) { c.MaxConns, c.MaxUnidentified = 16, 16 }
	balancer := func(g *Gateway, ln net.Listener) net.Listener {
		return g.Proxied(ln, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")})
	}
	wrappedInBubble(t, few, balancer, func(t *testing.T, g *bubble) {
		comes := func(from string) *timed {
			s := g.join()
			s.send([]byte("PROXY TCP4 " + from + " 192.0.2.9 4711 5027\r\n"))
			synctest.Wait()
			return s
		}
		slow := comes("203.0.113.1")
		slower := g.join() // the balancer itself is slow
		for range 100 {
			comes("198.51.100.7")
		}
		require.Zero(t, time.Since(slow.began), "the flood makes room for itself at once")
		slow.login(imei)
		slower.send(append([]byte("PROXY TCP4 203.0.113.2 192.0.2.9 4711 5027\r\n"), handshake(otherIMEI)...))
		slower.expect("01")
	})
}

// Each socket of the flood is in the middle of its registration when its place is taken, and
// would end only a second later.
func TestADeviceWaitsForTheRegistrationOfNoFlood(t *testing.T) {
	t.Parallel()
	manyInBubble(t, func(c *Config) { c.MaxConns = 10 }, func(t *testing.T, g *bubble) {
		began := time.Now()
		for i := range 200 {
			s := g.join()
			s.registrar.land = false
			s.send(handshake(fmt.Sprintf("99%013d", i)))
			synctest.Wait()
		}
		require.Zero(t, time.Since(began))
		device := g.join()
		device.login(imei)
		require.Equal(t, time.Second, time.Since(began), "as without Redis")
		synctest.Wait()
		require.Len(t, g.running, 10, "the others have ended")
		require.Equal(t, 10, g.Connections())
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
