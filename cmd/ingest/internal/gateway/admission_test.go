package gateway

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

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
		handshake(t, imei)[:9],    // never sends the rest
		[]byte("\x00\x0fgarbage"), // no digits
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		unhex(t, find(t, "neg_tls_hello").Hex),
		append(handshake(t, "490154203237518"), endless...), // 4 GiB more, all from one device
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
	await(t, func() bool { return b.Connections() == devices && b.admission.count(unidentified) == 0 })
}

func TestASilentSocketMakesRoomAfterThreeSecondsWhenThereAreTooMany(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(c *Config) { c.MaxUnidentified = 1 }, func(t *testing.T, g *Gateway, join func() *timed) {
		first := join() // the only one of its address
		<-time.After(time.Second)
		second := join()
		first.endsAfter(t, 3*time.Second) // to let the second in
		second.login(t)
		require.Equal(t, 3*time.Second, time.Since(first.began))

		third := join()                    // a device has made room, so nobody is displaced
		third.endsAfter(t, 15*time.Second) // by its handshake's own deadline
		require.Equal(t, 1.0, testutil.ToFloat64(g.metrics.disconnects.WithLabelValues(endCrowded)))
	})
}

func TestADeviceIsServedWhateverAFloodSays(t *testing.T) {
	t.Parallel()
	invented := func(n int) []byte { return handshake(t, fmt.Sprintf("99%013d", n)) }
	for name, flood := range map[string]func(n int) []byte{
		"nothing":                  func(int) []byte { return nil },
		"an IMEI":                  invented,
		"an IMEI and half a frame": func(n int) []byte { return append(invented(n), frame(t, 1)[:20]...) },
		"an IMEI and one frame":    func(n int) []byte { return append(invented(n), frame(t, 1)...) },
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
			from("127.0.0.2", slots)
			serve("352093081452251")
			for i := range 10 {
				from(fmt.Sprint("127.0.1.", i+1), slots)
			}
			serve("490154203237518")
			old.reports()
			require.LessOrEqual(t, b.Connections(), slots)
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
		reports.write(t, handshake(t, "352093081452251"))
		require.Equal(t, []byte{1}, reports.read(t, 1))
		for range 5 {
			<-time.After(10 * time.Second)
			talks.write(t, []byte{0xFF})
		}
		reports.write(t, frame(t, 1))
		require.Equal(t, []byte{0, 0, 0, 1}, reports.read(t, 4))
		talks.endsAfter(t, time.Minute)
		require.Equal(t, 1.0, testutil.ToFloat64(g.metrics.disconnects.WithLabelValues(endUnproven)))
		reports.endsAfter(t, 50*time.Second+idleTime)
	})
}

func TestTheLeastDeservingSocketGoesFirst(t *testing.T) {
	t.Parallel()
	a := newAdmission(64, 10, 10)
	now := time.Now()
	socket := func(from string, age time.Duration) *session {
		s := &session{came: now.Add(-age)}
		a.crowds[unidentified].add(s, netip.MustParsePrefix(from+"/32"), s.came)
		return s
	}
	rises := func(s *session, frames int) *session {
		a.rise(s, unproven, s.address)
		for n := range frames {
			a.reported(s, n+1)
		}
		return s
	}
	lone := socket("10.0.0.1", time.Second)
	two := []*session{socket("10.0.0.2", 2*time.Second), socket("10.0.0.2", time.Millisecond)}
	named := []*session{rises(socket("10.0.0.3", 0), 0), rises(socket("10.0.0.3", 0), 0), rises(socket("10.0.0.3", 0), 0)}
	var once []*session
	for range 4 {
		once = append(once, rises(socket("10.0.0.4", 0), 1))
	}
	rises(socket("10.0.0.5", time.Hour), reports) // never
	for _, want := range []*session{two[0], named[0], named[1], once[0], once[1]} {
		got, _ := a.least(unidentified, newcomer)
		require.Same(t, want, got)
		a.leave(got)
	}
	got, left := a.least(unidentified, newcomer)
	require.Nil(t, got, "each of the rest is its address' only one, or within its share")
	require.Positive(t, left)
	require.LessOrEqual(t, left, spared)
	lone.since = now.Add(-spared)
	got, _ = a.least(unidentified, newcomer)
	require.Same(t, lone, got)
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
			s.write(t, handshake(t, fmt.Sprintf("99%013d", i)))
			synctest.Wait()
		}
		require.Zero(t, time.Since(began))
		device := join()
		device.login(t)
		require.Equal(t, time.Second, time.Since(began), "as without Redis")
		synctest.Wait()
		require.Zero(t, g.admission.ending)
		require.Len(t, g.slots, 10)
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
	await(t, func() bool { return b.Connections() == 1 && b.admission.count(unidentified) == 0 })
	b.stop()
	w.expectEnd()
	require.Empty(t, b.registrar.all())
	awaitCount(t, 1, b.metrics.disconnects.WithLabelValues(endDraining))
}
