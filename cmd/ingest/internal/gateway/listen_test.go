package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/certtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// listening returns a gateway that serves a wrapped listener, without a plain one.
func listening(t *testing.T, wrap func(*bench, net.Listener) net.Listener, change ...func(*Config)) *bench {
	t.Helper()
	return setupOn(t, redistest.Shared(t), wrap, change...)
}

func overTLS(t *testing.T) func(*bench, net.Listener) net.Listener {
	cert := certtest.New(t, "gateway").Itself()
	return func(b *bench, ln net.Listener) net.Listener {
		b.cfg.Certificate = func() *tls.Certificate { return cert }
		return b.OverTLS(ln)
	}
}

func (b *bench) dialTLS(t *testing.T, version uint16) *wire {
	t.Helper()
	w := b.dial(t)
	// tests look at its name only
	conn := tls.Client(w.Conn, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
	require.NoError(t, conn.Handshake())
	return &wire{t, conn}
}

func TestDevicesSpeakTLSFrom12On(t *testing.T) {
	t.Parallel()
	b := listening(t, overTLS(t))
	for range 20 {
		b.dial(t) // says nothing, and delays nobody
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w := b.dialTLS(t, version)
		w.login(imei)
		w.send(frame(3))
		w.expect("00000003")
		_ = w.Close()
	}
	old := tls.Client(b.dial(t).Conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})
	require.Error(t, old.Handshake())
	plain := b.dial(t)
	plain.send(handshake(imei))
	_, _ = plain.Read(make([]byte, 100)) // an alert, or nothing
	b.awaitEnds(t, 2, endTLS)
	require.Len(t, b.registrar.all(), 2)
}

func TestATLSHandshakeWithoutAnEndFillsNoMemory(t *testing.T) {
	t.Parallel()
	b := listening(t, overTLS(t))
	w := b.dial(t)
	const hello = 60_000                                              // package tls would hold all of it
	w.send([]byte{22, 3, 1, 0x40, 0, 1, 0, hello >> 8, hello & 0xFF}) // a record of 16 KiB
	w.send(make([]byte, 0x4000-4))
	w.send([]byte{22, 3, 1, 0x40, 0})
	w.send(make([]byte, 0x4000)) // beyond the bound, and less than what was announced
	n, _ := w.Read(make([]byte, 1))
	require.Zero(t, n)
	b.awaitEnds(t, 1, endTLS)

	w = b.dialTLS(t, 0) // and afterwards nothing is counted
	w.login(imei)
	w.send(bytes.Repeat([]byte{0xFF}, 2*mostHandshake)) // keep-alives
	w.reports()
}

// gathering holds back writes.
type gathering struct {
	net.Conn
	hold bool
	held []byte
}

func (g *gathering) Write(p []byte) (int, error) {
	if g.hold {
		g.held = append(g.held, p...)
		return len(p), nil
	}
	return g.Conn.Write(p)
}

func (g *gathering) flush(t *testing.T) {
	g.hold = false
	_, err := g.Conn.Write(g.held)
	require.NoError(t, err)
}

func proxied(trusted ...string) func(*bench, net.Listener) net.Listener {
	var networks []netip.Prefix
	for _, network := range trusted {
		networks = append(networks, netip.MustParsePrefix(network))
	}
	return func(b *bench, ln net.Listener) net.Listener { return b.Proxied(ln, networks) }
}

func TestAProxyNamesTheDevicesAddress(t *testing.T) {
	t.Parallel()
	var log process.Buffer
	b := listening(t, proxied("10.0.0.0/8", "127.0.0.0/8"), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for version, from := range map[byte]string{1: "203.0.113.1", 2: "203.0.113.2"} {
		w := b.dial(t)
		header := proxyproto.HeaderProxyFromAddrs(version,
			&net.TCPAddr{IP: net.ParseIP(from), Port: 4711}, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 5027})
		p, err := header.Format()
		require.NoError(t, err)
		session := append(append(p, handshake(imei)...), frame(1)...)
		if version == 1 { // comes in one packet, by its specification
			w.send(session[:len(p)+5])
			session = session[len(p)+5:]
		}
		for _, b := range session[:40] { // however it is cut
			w.send([]byte{b})
		}
		w.send(session[40:])
		w.expect("01" + "00000001")
		w.send(frame(2))
		w.expect("00000002")
		require.NoError(t, w.Close())
		await(t, func() bool { return strings.Contains(log.String(), "peer="+from+":4711") })
	}
}

func TestAHeaderFromAnywhereElseIsNotListenedTo(t *testing.T) {
	t.Parallel()
	b := listening(t, proxied("10.0.0.0/8"))
	for range 3 {
		w := b.dial(t)
		_, _ = w.Write(append([]byte("PROXY TCP4 10.0.0.1 192.0.2.1 4711 5027\r\n"), handshake(imei)...))
		w.expectEnd()
	}
	b.awaitEnds(t, 3, endUntrusted)
	require.Empty(t, b.registrar.all())
}

func TestOneGatewayServesSeveralListeners(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	r := &registrar{land: true}
	g := New(Config{Register: r.register, Client: client, MaxConns: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lns []net.Listener
	for range 3 {
		ln, err := Listen(ctx, "127.0.0.1:0")
		require.NoError(t, err)
		lns = append(lns, ln)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, lns...) }()
	for i, imei := range []string{imei, otherIMEI} { // the most possible, on different listeners
		b := &bench{addr: lns[i].Addr().String()}
		b.login(t, imei)
	}
	require.NoError(t, lns[2].Close()) // a single failure ends all
	require.ErrorIs(t, <-served, net.ErrClosed)
	for _, ln := range lns {
		require.ErrorIs(t, ln.Close(), net.ErrClosed)
	}
	require.Zero(t, g.Connections())
}

// transports returns what wraps a listener, by name.
func transports(t *testing.T) map[string]func(*bench, net.Listener) net.Listener {
	t.Helper()
	return map[string]func(*bench, net.Listener) net.Listener{
		"TCP": func(_ *bench, ln net.Listener) net.Listener { return ln },
		"TLS": overTLS(t),
	}
}

// gathers returns a device's socket after its handshake. Its writes can be held back, each a TLS
// record of its own.
func (b *bench) gathers(t *testing.T, over string) (*wire, *gathering) {
	t.Helper()
	w := b.dial(t)
	g := &gathering{Conn: w.Conn}
	w.Conn = g
	if over == "TLS" { // 1.2: then no tickets follow
		w.Conn = tls.Client(g, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	}
	w.login(imei)
	return w, g
}
