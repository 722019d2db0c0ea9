package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
	"github.com/rollcall-redis/rollcall/internal/streak"
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
// a header, or not from a trusted address (CIDRs or single addresses), are closed. A header can
// name any sender: only proxies may be able to reach ln from these addresses.
func (g *Gateway) Proxied(ln net.Listener, trusted []string) (net.Listener, error) {
	policy, err := proxyproto.TrustProxyHeaderFromRanges(trusted)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return &proxyproto.Listener{
		Listener: ln,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			p, err := policy(o)
			if err != nil {
				g.metrics.disconnects.WithLabelValues(endUntrusted).Inc()
				g.cfg.Logger.Debug("connection is not from a trusted proxy", "peer", named(o.Upstream))
			}
			return p, err
		},
		ReadHeaderTimeout: -1, // the handshake's own deadline bounds it
	}, nil
}

const certificateAge = time.Second

// Certificate is a TLS certificate and its key in two files. Changes apply within a second; while
// the files cannot be used, the former certificate stays, and a warning is logged.
type Certificate struct {
	certFile, keyFile string
	expired           bool // is used too
	log               *slog.Logger
	reads             *streak.Streak

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time
}

// LoadCertificate reads the files. An expired certificate is an error unless expired is set.
func LoadCertificate(certFile, keyFile string, expired bool, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, expired: expired, log: log, read: time.Now()}
	var err error
	if c.pair, err = c.load(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	c.reads = streak.New(log, "TLS certificate cannot be used, the former one stands",
		"TLS certificate can be used again", "file", certFile)
	return c, nil
}

func (c *Certificate) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, err
	}
	if ends := pair.Leaf.NotAfter; !c.expired && time.Now().After(ends) {
		return nil, fmt.Errorf("%s expired at %s", c.certFile, ends.Format(time.RFC3339))
	}
	return &pair, nil
}

// Ends returns when the certificate in use expires.
func (c *Certificate) Ends() time.Time { return c.current().Leaf.NotAfter }

// OverTLS returns a listener for TLS 1.2 or newer. ln may come from Proxied: the PROXY header is
// then outside of TLS.
func (g *Gateway) OverTLS(ln net.Listener, c *Certificate) net.Listener {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
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

func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) >= certificateAge {
		c.read = time.Now()
		pair, err := c.load()
		c.reads.Note(err)
		if err == nil && !slices.EqualFunc(pair.Certificate, c.pair.Certificate, bytes.Equal) {
			c.pair = pair
			c.log.Info("TLS certificate read again", "file", c.certFile, "expires", pair.Leaf.NotAfter)
		}
	}
	return c.pair
}

// named formats an address as text: a JSON handler would write the fields of a net.TCPAddr. addr
// may be nil.
func named(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// knocks returns whom a new connection counts for. Until its header has come, a proxied one counts
// for nobody.
func knocks(conn net.Conn) netip.Addr {
	below := conn
	if c, ok := conn.(*tls.Conn); ok {
		below = c.NetConn().(*belowTLS).Conn
	}
	if _, ok := below.(*proxyproto.Conn); ok {
		return netip.Addr{}
	}
	return doors.Addr(named(conn.RemoteAddr()))
}

// transport returns the socket below conn.
func transport(conn net.Conn) net.Conn {
	switch c := conn.(type) {
	case *tls.Conn:
		return transport(c.NetConn())
	case *belowTLS:
		return transport(c.Conn)
	case *proxyproto.Conn:
		return c.Raw()
	}
	return conn
}
