package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
)

// keepAlive is sparing, since a probe wakes a parked device's radio.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Minute, Interval: 30 * time.Second, Count: 4}

// deadPeer is how long a peer may fail to answer probes or to acknowledge data. Linux applies the
// latter limit to probes too, and then ignores their count: with a shorter one, a single lost probe
// would end a parked device's socket. Without one, Linux retransmits for a quarter of an hour.
var deadPeer = keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval

// Listen opens a socket for devices. Dead peers are noticed after seven minutes.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAliveConfig: keepAlive,
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) { err = setUserTimeout(fd, deadPeer) }), err)
		},
	}
	return lc.Listen(ctx, "tcp", addr)
}

// Proxied returns a listener for load balancers that speak the PROXY protocol. Connections without
// a header, or not from a trusted address, are closed. A header can name any sender: only proxies
// may be able to reach ln from these addresses.
func (g *Gateway) Proxied(ln net.Listener, trusted []netip.Prefix) net.Listener {
	return &proxyproto.Listener{
		Listener: ln,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			from := doors.Addr(named(o.Upstream))
			if slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(from) }) {
				return proxyproto.REQUIRE, nil
			}
			g.metrics.disconnects.WithLabelValues(endUntrusted).Inc()
			g.cfg.Logger.Debug("connection is not from a trusted proxy", "peer", named(o.Upstream))
			return proxyproto.REJECT, proxyproto.ErrInvalidUpstream
		},
		ReadHeaderTimeout: -1, // the handshake's own deadline bounds it
	}
}

// OverTLS returns a listener for TLS 1.2 or newer. ln may come from Proxied: the PROXY header is
// then outside of TLS.
func (g *Gateway) OverTLS(ln net.Listener) net.Listener {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.cfg.Certificate(), nil },
	}
	if g.cfg.ClientCAs != nil {
		// Not RequireAndVerifyClientCert: it would skip verification for resumed sessions, and its
		// refusals could not be distinguished from other failed handshakes.
		config.ClientAuth = tls.RequestClientCert
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			return verifyDevice(cs.PeerCertificates, g.cfg.ClientCAs())
		}
	}
	return tls.NewListener(handshakes{ln}, config)
}

// mostHandshake bounds a TLS handshake: package tls would hold 320 KiB per socket, for peers that
// have proved nothing. A chain of three certificates is below 8 KiB.
const mostHandshake = 32 << 10

type handshakes struct{ net.Listener }

func (h handshakes) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &belowTLS{Conn: conn, left: mostHandshake}, nil
}

// belowTLS fails if the peer sends more than mostHandshake bytes before the handshake is over.
type belowTLS struct {
	net.Conn
	left int
	over bool
}

// One goroutine at a time.
func (b *belowTLS) Read(p []byte) (int, error) {
	if b.over {
		return b.Conn.Read(p)
	}
	if b.left == 0 {
		return 0, fmt.Errorf("more than %d bytes", mostHandshake)
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// named formats an address as text: a JSON handler would write the fields of a net.TCPAddr. addr
// may be nil.
func named(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// layers are what is below a connection.
type layers struct {
	tls     *tls.Conn // nil without this layer, as are the next two
	below   *belowTLS
	proxied *proxyproto.Conn
	under   net.Conn // the socket: closing TLS would wait for the peer
}

func unwrap(conn net.Conn) (l layers) {
	if l.tls, _ = conn.(*tls.Conn); l.tls != nil {
		l.below = l.tls.NetConn().(*belowTLS)
		conn = l.below.Conn
	}
	if l.proxied, _ = conn.(*proxyproto.Conn); l.proxied != nil {
		conn = l.proxied.Raw()
	}
	l.under = conn
	return l
}

// knocks returns whom a new connection counts for. Until its header has come, a proxied one counts
// for nobody.
func (s *session) knocks() netip.Addr {
	if s.proxied != nil {
		return netip.Addr{}
	}
	return s.addr()
}

func (s *session) addr() netip.Addr { return doors.Addr(named(s.conn.RemoteAddr())) }
