package gateway

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// pipes is a listener whose sockets are net.Pipes, with deadlines on the bubble's clock.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// addressed is a pipe from an address.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711} }

// timed is a gateway in a bubble, and a socket to it.
type timed struct {
	net.Conn
	gateway   *Gateway
	registrar *registrar
	began     time.Time
}

// inBubble runs a test on a gateway that dials Redis with dial and uses the bubble's clock.
func inBubble(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), test func(t *testing.T, s *timed)) {
	manyInBubble(t, dial, nil, func(t *testing.T, _ *Gateway, join func() *timed) { test(t, join()) })
}

// manyInBubble is inBubble for any number of sockets. after is called once the gateway has
// stopped.
func manyInBubble(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), change func(*Config),
	test func(t *testing.T, g *Gateway, join func() *timed), after ...func(t *testing.T)) {
	plain := func(_ *Gateway, ln net.Listener) net.Listener { return ln }
	wrappedInBubble(t, dial, change, plain, test, after...)
}

// wrappedInBubble is manyInBubble for a wrapped listener.
func wrappedInBubble(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), change func(*Config),
	wrap func(*Gateway, net.Listener) net.Listener,
	test func(t *testing.T, g *Gateway, join func() *timed), after ...func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute
		if dial != nil {
			o.Dialer = dial
		}
		client := redis.NewClient(o)
		defer client.Close()
		r := &registrar{land: true}
		cfg := Config{Register: r.register, Client: client, Stream: redistest.Prefix(t), FirstFrame: idleTime}
		if change != nil {
			change(&cfg)
		}
		g := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ln := &pipes{conns: make(chan net.Conn)}
		ln.ctx, ln.close = context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() { served <- g.Serve(ctx, wrap(g, ln)) }()
		var all []net.Conn
		test(t, g, func() *timed {
			ours, theirs := net.Pipe()
			all = append(all, ours)
			ln.conns <- addressed{theirs}
			return &timed{Conn: ours, gateway: g, registrar: r, began: time.Now()}
		})
		cancel()
		require.NoError(t, <-served)
		for _, f := range after {
			f(t)
		}
		for _, c := range all {
			require.NoError(t, c.Close())
		}
	})
}

func (s *timed) login(t *testing.T) {
	t.Helper()
	s.comes(t, imei)
}

func (s *timed) comes(t *testing.T, imei string) {
	t.Helper()
	s.write(t, handshake(imei))
	require.Equal(t, []byte{1}, s.read(t, 1))
}

// stores sends a frame.
func (s *timed) stores(t *testing.T) {
	t.Helper()
	s.write(t, frame(1))
	require.Equal(t, []byte{0, 0, 0, 1}, s.read(t, 4))
}

// reports logs in and sends a frame. Times count from its acknowledgement.
func (s *timed) reports(t *testing.T) {
	t.Helper()
	s.login(t)
	s.stores(t)
	s.began = time.Now()
}

func (s *timed) write(t *testing.T, p []byte) {
	t.Helper()
	_, err := s.Write(p)
	require.NoError(t, err)
}

func (s *timed) read(t *testing.T, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	_, err := io.ReadFull(s, p)
	require.NoError(t, err)
	return p
}

// endsAfter waits for the gateway to close the socket after the given time.
func (s *timed) endsAfter(t *testing.T, want time.Duration) {
	t.Helper()
	got, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, want, time.Since(s.began))
}

func TestASocketOfADeviceThatHasMovedEndsAfterTheFrameInHand(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		s.reports(t)
		<-time.After(time.Hour)
		s.registrar.all()[0].moves()
		s.endsAfter(t, time.Hour)
		<-s.registrar.all()[0].released
	})
}

func TestADeviceWaitsNoLongerThanASecondForItsRegistration(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		s.registrar.land = false
		s.login(t)
		require.Equal(t, time.Second, time.Since(s.began))
	})
}

func TestADeviceIsAcceptedAsSoonAsItsRegistrationLands(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		s.registrar.land = false
		s.write(t, handshake(imei))
		<-time.After(300 * time.Millisecond)
		close(s.registrar.all()[0].landed)
		require.Equal(t, []byte{1}, s.read(t, 1))
		require.Equal(t, 300*time.Millisecond, time.Since(s.began))
	})
}

func TestAnAcknowledgementIsWithheldAfterTenSeconds(t *testing.T) {
	t.Parallel()
	// A Redis that accepts connections and never answers.
	hole := func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = io.Copy(io.Discard, theirs)
			_ = theirs.Close()
		}()
		return ours, nil
	}
	inBubble(t, hole, func(t *testing.T, s *timed) {
		s.login(t)
		s.write(t, frame(1))
		s.endsAfter(t, 10*time.Second)
	})
}

func TestADeviceThatTakesNoAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		s.login(t)
		s.write(t, frame(1)) // a pipe holds nothing: unread, the answer blocks
		<-time.After(time.Minute)
		s.endsAfter(t, time.Minute)
		_, released := s.registrar.all()[0].counts()
		require.Equal(t, 1, released)
	})
}

func TestAStopThatTakesTooLongEndsWhateverASocketWaitsFor(t *testing.T) {
	t.Parallel()
	const drain = claimTime / 2
	for name, waits := range map[string]func(t *testing.T, s *timed){
		"for its registration": func(t *testing.T, s *timed) {
			s.registrar.land = false
			s.write(t, handshake(imei))
		},
		"for a device that takes no answer": func(t *testing.T, s *timed) {
			s.login(t)
			s.write(t, frame(1)) // a pipe holds nothing: unread, the answer blocks
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var began time.Time
			manyInBubble(t, nil, func(c *Config) { c.Drain = drain },
				func(t *testing.T, _ *Gateway, join func() *timed) {
					waits(t, join())
					synctest.Wait()
					began = time.Now()
				}, func(t *testing.T) { require.Equal(t, drain, time.Since(began)) })
		})
	}
}

func TestASilentSocketEndsInTheTimeAndForTheReasonOfItsTurn(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		after  time.Duration // what the device does
		device func(t *testing.T, s *timed)
	}{
		endRefused: {15 * time.Second, func(t *testing.T, s *timed) { // whatever trickles
			for _, b := range handshake(imei)[:10] {
				s.write(t, []byte{b})
				<-time.After(time.Second)
			}
		}},
		endUnproven: {idleTime, func(t *testing.T, s *timed) { s.login(t) }}, // FirstFrame
		endIncomplete: {90 * time.Second, func(t *testing.T, s *timed) {
			s.login(t)
			<-time.After(time.Minute)
			s.write(t, frame(1)[:1])
			<-time.After(20 * time.Second)
			s.write(t, frame(1)[1:9])
		}},
		endIdle: {2*time.Hour + 3900*time.Second, func(t *testing.T, s *timed) {
			s.reports(t)
			<-time.After(time.Hour)
			s.write(t, []byte{0xFF}) // a keep-alive counts
			<-time.After(time.Hour)
			s.stores(t)
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *timed) {
				c.device(t, s)
				s.endsAfter(t, c.after)
				synctest.Wait()
				for _, of := range s.registrar.all() {
					<-of.released
				}
				require.InDelta(t, 1, testutil.ToFloat64(s.gateway.metrics.disconnects.WithLabelValues(reason)), 0)
			})
		})
	}
}
