package gateway

import (
	"cmp"
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
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
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

func handshakeOutcome(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, teltonika.ErrHandshake), errors.Is(err, errTLS), errors.Is(err, errProxy),
		errors.Is(err, errCertificate):
		return "refused"
	case errors.Is(err, errUnknownDevice):
		return "unknown_device"
	case errors.Is(err, errUndecided):
		return "undecided"
	}
	return "incomplete"
}

// greet accepts the device without Redis too: the registry heals later.
func (s *session) greet(ctx context.Context) error {
	if err := s.within(handshakeTime, endRefused); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	waiting, cancel := context.WithCancel(s.g.stopping)
	defer cancel()
	s.giveUp.Store(&cancel) // end may have been called before: then the read fails
	imei, err := s.reader.IMEI()
	if err == nil {
		err = s.checkCertificate(imei)
	}
	if err == nil {
		s.beginSpan(ctx)
		if !teltonika.LuhnValid(imei) {
			s.g.metrics.luhn.Inc() // too many genuine devices fail this to refuse them
		}
		if err = s.identified(waiting); err == nil {
			err = s.g.authority.decide(waiting, imei)
		}
	}
	if errors.Is(err, teltonika.ErrHandshake) || errors.Is(err, errUnknownDevice) ||
		errors.Is(err, errCertificate) {
		_ = s.answer([]byte{teltonika.Refuse}) // a courtesy; the socket closes anyway
	}
	if err != nil {
		return err
	}
	if err := s.register(ctx, waiting, imei); err != nil {
		return err
	}
	return s.answer([]byte{teltonika.Accept})
}

func (s *session) prepare() error {
	if s.proxied != nil {
		if s.proxied.ProxyHeader() == nil {
			_, err := s.proxied.Read(nil) // returns the reason
			return fmt.Errorf("%w: %w", errProxy, cmp.Or(err, errors.New("none came")))
		}
		s.guest.Move(s.addr())
	}
	if s.tls == nil {
		return nil
	}
	err := s.tls.SetWriteDeadline(time.Now().Add(handshakeTime))
	if err == nil {
		// A key exchange needs a deep stack, which the session's goroutine would keep.
		done := make(chan error, 1)
		go func() { done <- s.tls.Handshake() }()
		err = <-done
	}
	if err == nil {
		s.below.over = true
		return nil
	}
	if errors.Is(err, errCertificate) {
		s.logRefusal("", err)
	}
	return fmt.Errorf("%w: %w", errTLS, err)
}

// register gives up its turn before the answer is sent: a device that does not read it delays no
// other.
func (s *session) register(ctx, waiting context.Context, imei string) error {
	select {
	case s.g.turns <- struct{}{}:
		defer func() { <-s.g.turns }()
	case <-waiting.Done():
		return errDraining
	}
	// The handshake may be stale. If the device has given up meanwhile, its handshake elsewhere is
	// newer.
	if _, end := s.unread(); end {
		return errGone
	}
	s.origin = origin{imei, named(s.conn.RemoteAddr())}
	s.g.claim(s)
	if !s.vouched() { // the authorities may have changed, and recheckCertificates finished, before
		return errCertificate
	}
	landing, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := s.claim.Wait(landing); err != nil { // the registry has counted the error
		failpoint.Hit(failpoint.UnansweredRegister)
		s.g.cfg.Logger.Debug("device served before its registration landed", "imei", imei, "error", err)
	}
	return nil
}

// rate makes a device wait for its acknowledgements. After a refusal it would send the same frame
// for ever.
type rate struct {
	// A frame costs the larger of its records' and its bytes' cost.
	record, octet time.Duration
	saved         time.Duration
}

// deviceRate is above what real devices send: a frame of 1,280 bytes has 10 to 20 records, and the
// next one leaves after the acknowledgement, a tenth of a second later on a good network. A full
// memory of 192,000 records is delivered in 16 minutes. A frame waits at most 1.3 s (255 records);
// no device can be set to wait less than five seconds for its acknowledgement.
var deviceRate = rate{record: time.Second / 200, octet: time.Second / (32 << 10), saved: 10 * time.Second}

// charge returns the time up to which the socket has paid.
func (r rate) charge(paid, now time.Time, records, octets int) time.Time {
	if least := now.Add(-r.saved); paid.Before(least) {
		paid = least
	}
	return paid.Add(max(time.Duration(records)*r.record, time.Duration(octets)*r.octet))
}

// pace waits until the frame may be stored, or until the gateway drains.
func (s *session) pace(frame teltonika.Frame) error {
	now := time.Now()
	octets := len(frame.Raw)
	if frame.Codec.IsCommand() { // stored as hex, and a device cannot fill a second with serial data
		octets *= 4
	}
	s.paid = s.g.rate.charge(s.paid, now, int(frame.Count), octets)
	left := s.paid.Sub(now)
	if left <= 0 {
		return nil
	}
	s.g.metrics.slowed.Inc()
	wait.For(s.g.stopping, left)
	if s.endReason() != "" {
		return errEnded
	}
	return nil
}
