package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
)

// keepAlive is sparing, since a probe wakes the radio of a parked device.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Minute, Interval: 30 * time.Second, Count: 4}

// deadPeer is how long a peer may be gone before that is noticed, whether it owes an answer to a
// probe or to what it was sent. Linux gives up a silent peer by the latter too and does not count
// probes then, so that with less a single lost probe would end a parked device's socket; without it
// Linux sends an answer again for a quarter of an hour.
var deadPeer = keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval

// Listen opens a socket for devices, whose dead peers are noticed after seven
// minutes.
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
// either version; others are closed. Nobody else may reach ln with a header, since it names whoever
// the sender likes.
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
				g.cfg.Logger.Debug("connection is not from a trusted proxy", "peer", o.Upstream)
			}
			return p, err
		},
		ReadHeaderTimeout: -1, // it has its place in the handshake's own deadline
	}, nil
}

// certificateAge is how old what is known of a certificate's files may be.
const certificateAge = time.Second

// Certificate is a TLS certificate and its key in two files, which are read again when they have
// changed.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	pair    *tls.Certificate
	read    string    // what the files were when pair was read
	refused string    // what they were when they could not be, so that it is said once
	looked  time.Time // when that was last compared
}

// LoadCertificate reads a certificate. Later, files that cannot be read leave the former one
// standing, with a warning.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.load(c.stamp()); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return c, nil
}

// Config is for a listener of TLS 1.2 and newer.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
}

// current is the certificate as it stands in the files, or stood when they were last in order.
func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificateAge {
		return c.pair
	}
	c.looked = time.Now()
	stamp := c.stamp()
	if stamp == c.read {
		return c.pair
	}
	switch err := c.load(stamp); {
	case err == nil:
		c.log.Info("TLS certificate read again", "file", c.certFile, "expires", c.pair.Leaf.NotAfter)
	case stamp != c.refused:
		c.refused = stamp
		c.log.Warn("TLS certificate cannot be read, the former one stands", "error", err)
	}
	return c.pair
}

// load reads the files, which were as stamp says just before.
func (c *Certificate) load(stamp string) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.pair, c.read = &pair, stamp
	}
	return err
}

// stamp changes when a file does.
func (c *Certificate) stamp() string {
	var s string
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			s += err.Error()
			continue
		}
		s += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
	}
	return s
}

// transport is the socket below conn.
func transport(conn net.Conn) net.Conn {
	switch c := conn.(type) {
	case *tls.Conn:
		return c.NetConn()
	case *proxyproto.Conn:
		return c.Raw()
	}
	return conn
}
