package gateway

import (
	"context"
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

// bubble is a gateway in a bubble: it uses the bubble's clock, as its Redis does.
type bubble struct {
	*Gateway
	test      *testing.T
	registrar *registrar
	ln        *pipes
}

// timed is a device's socket to it.
type timed struct {
	*bubble
	*wire
	began time.Time
}

func (b *bubble) join() *timed {
	ours, theirs := net.Pipe()
	b.test.Cleanup(func() { _ = ours.Close() })
	b.ln.conns <- addressed{theirs}
	return &timed{b, &wire{b.test, ours}, time.Now()}
}

// inBubble runs a test on a gateway with one socket.
func inBubble(t *testing.T, test func(t *testing.T, s *timed)) {
	manyInBubble(t, nil, func(t *testing.T, g *bubble) { test(t, g.join()) })
}

// manyInBubble runs a test on a gateway. after is called once it has stopped.
func manyInBubble(
	t *testing.T, change func(*Config), test func(t *testing.T, g *bubble), after ...func(t *testing.T),
) {
	plain := func(_ *Gateway, ln net.Listener) net.Listener { return ln }
	wrappedInBubble(t, change, plain, test, after...)
}

// wrappedInBubble is manyInBubble for a wrapped listener.
func wrappedInBubble(t *testing.T, change func(*Config), wrap func(*Gateway, net.Listener) net.Listener,
	test func(t *testing.T, g *bubble), after ...func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute
		client := redis.NewClient(o)
		defer client.Close()
		r := &registrar{land: true}
		cfg := Config{Register: r.register, Client: client, Stream: redistest.Prefix(t), FirstFrame: idleTime}
		if change != nil {
			change(&cfg)
		}
		b := &bubble{New(cfg), t, r, &pipes{conns: make(chan net.Conn)}}
		ctx, cancel := context.WithCancel(t.Context())
		b.ln.ctx, b.ln.close = context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() { served <- b.Serve(ctx, wrap(b.Gateway, b.ln)) }()
		test(t, b)
		cancel()
		require.NoError(t, <-served)
		for _, f := range after {
			f(t)
		}
	})
}

// begins logs in, as the usual device if none is given, and sends a frame. Times count from its
// acknowledgement.
func (s *timed) begins(as ...string) *timed {
	s.t.Helper()
	s.login(append(as, imei)[0])
	s.reports()
	s.began = time.Now()
	return s
}

// endsAfter waits for the gateway to close the socket after the given time.
func (s *timed) endsAfter(want time.Duration) {
	s.t.Helper()
	s.expectEnd()
	require.Equal(s.t, want, time.Since(s.began))
}

func TestADeviceIsAcceptedOnceItsRegistrationLandsOrAfterASecond(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(t *testing.T, g *bubble) {
		g.registrar.land = false
		late, lands := g.join(), g.join()
		late.send(handshake(otherIMEI))
		synctest.Wait()
		lands.send(handshake(imei))
		<-time.After(300 * time.Millisecond)
		close(g.registrar.all()[1].landed)
		lands.expect("01")
		require.Equal(t, 300*time.Millisecond, time.Since(lands.began))
		late.expect("01")
		require.Equal(t, time.Second, time.Since(late.began))
	})
}

func TestAnAcknowledgementIsWithheldAfterTenSeconds(t *testing.T) {
	t.Parallel()
	silent := func(c *Config) {
		c.Client.AddHook(redistest.Intercept(func(ctx context.Context, _ []redis.Cmder, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		}))
	}
	manyInBubble(t, silent, func(t *testing.T, g *bubble) {
		s := g.join()
		s.login(imei)
		s.send(frame(1))
		s.endsAfter(10 * time.Second)
	})
}

func TestADeviceThatTakesNoAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.login(imei)
		s.send(frame(1)) // a pipe holds nothing: unread, the answer blocks
		<-time.After(time.Minute)
		s.endsAfter(time.Minute)
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
			s.send(handshake(imei))
		},
		"for a device that takes no answer": func(t *testing.T, s *timed) {
			s.login(imei)
			s.send(frame(1)) // a pipe holds nothing: unread, the answer blocks
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var began time.Time
			manyInBubble(t, func(c *Config) { c.Drain = drain },
				func(t *testing.T, g *bubble) {
					waits(t, g.join())
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
				s.send([]byte{b})
				<-time.After(time.Second)
			}
		}},
		endUnproven: {idleTime, func(t *testing.T, s *timed) { // FirstFrame, whatever it sends but frames
			s.login(imei)
			<-time.After(time.Hour)
			s.send(append([]byte{0xFF}, response(c12, "")...)) // which says nothing
		}},
		endIncomplete: {90 * time.Second, func(t *testing.T, s *timed) {
			s.login(imei)
			<-time.After(time.Minute)
			s.send(frame(1)[:1])
			<-time.After(20 * time.Second)
			s.send(frame(1)[1:9])
		}},
		endIdle: {2*time.Hour + 3900*time.Second, func(t *testing.T, s *timed) {
			s.begins()
			<-time.After(time.Hour)
			s.send([]byte{0xFF}) // a keep-alive counts
			<-time.After(time.Hour)
			s.reports()
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *timed) {
				c.device(t, s)
				s.endsAfter(c.after)
				synctest.Wait()
				for _, of := range s.registrar.all() {
					<-of.released
				}
				require.InDelta(t, 1, testutil.ToFloat64(s.Gateway.metrics.disconnects.WithLabelValues(reason)), 0)
			})
		})
	}
}
