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

// keepAlive is sparing, since a probe wakes the radio of a parked device.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Minute, Interval: 30 * time.Second, Count: 4}

// deadPeer is how long a peer may be gone before it is given up, both when it does not answer
// probes and when it does not acknowledge data. Linux applies the latter limit to probes too and
// then does not count them: with a shorter one, a single lost probe would end a parked device's
// socket. Without it Linux sends an answer again for a quarter of an hour.
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

// Proxied is a listener for a load balancer that speaks the PROXY protocol. Each connection must
// come from one of the trusted addresses (CIDRs, or single ones) and begin with a PROXY header, of
// either version. Others are closed. A header can name any sender: only trusted proxies may reach
// ln from these addresses.
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

// certificateAge is how old the certificate in memory may be when a device comes.
const certificateAge = time.Second

// Certificate is a TLS certificate and its key in two files. A change of the files counts for the
// next handshake, or a second later.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	reads             *streak.Streak

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time // when the files were last read
}

// LoadCertificate reads a certificate. If the files cannot be read later, it logs a warning and
// keeps the former certificate.
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

// OverTLS is a listener for devices that speak TLS, 1.2 or newer. With Config.ClientCAs each device
// has to show a certificate. ln may be one of Proxied: the PROXY header is then outside of TLS.
func (g *Gateway) OverTLS(ln net.Listener, c *Certificate) net.Listener {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
	if g.cfg.ClientCAs != nil {
		// Not RequireAndVerifyClientCert: a resumed session would skip that verification, and the
		// reason for a refusal could not be distinguished from other failed handshakes.
		config.ClientAuth = tls.RequestClientCert
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			return verifyDevice(cs.PeerCertificates, g.cfg.ClientCAs())
		}
	}
	return tls.NewListener(handshakes{ln}, config)
}

// mostHandshake is how many bytes a device may send for its TLS handshake. Package tls would hold
// 64 KiB of a hello and 256 KiB of certificates for each socket, of somebody who has proved
// nothing. A device with a chain of three certificates sends less than 8 KiB.
const mostHandshake = 32 << 10

// handshakes is a listener of sockets below TLS.
type handshakes struct{ net.Listener }

// Accept is part of net.Listener.
func (h handshakes) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &belowTLS{Conn: conn, left: mostHandshake}, nil
}

// belowTLS is a socket that fails once more has come than the handshake may have, until that is
// over.
type belowTLS struct {
	net.Conn
	left int
	over bool // nothing is counted any more
}

// Read is part of net.Conn. Only one goroutine at a time reads.
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

// current is the certificate in the files, or the last one that could be read.
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

// named is an address as logs have it: a text, as HTTP's peers are. A JSON handler would write the
// fields of a net.TCPAddr. A connection need not have an address.
func named(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// transport is the socket below conn.
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
