package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

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
// the files are unreadable, the former certificate stays, and a warning is logged.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	reads             *streak.Streak

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time
}

// LoadCertificate reads the files.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	reads := streak.New(log, "TLS certificate cannot be read, the former one stands",
		"TLS certificate can be read again", "file", certFile)
	return &Certificate{
		certFile: certFile, keyFile: keyFile, log: log, reads: reads, pair: &pair, read: time.Now(),
	}, nil
}

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
		pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		c.reads.Note(err)
		if err == nil && !slices.EqualFunc(pair.Certificate, c.pair.Certificate, bytes.Equal) {
			c.pair = &pair
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
