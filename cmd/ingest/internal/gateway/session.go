package gateway

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Why a socket ended: the reasons of ingest_disconnects_total.
const (
	endRefused       = "refused"        // no IMEI, or none in time
	endUnknownDevice = "unknown_device" // not in the set of devices that may be served
	endUndecided     = "undecided"      // Redis did not say in time whether it is in the set
	endUntrusted     = "untrusted"      // not from a trusted proxy, on a listener for proxies
	endProxy         = "proxy"          // from a trusted proxy, but without a PROXY header
	endTLS           = "tls"            // no TLS handshake
	endCertificate   = "certificate"    // none of the device that is named, or none that counts
	endClosed        = "closed"         // by the device, between frames
	endIdle          = "idle"           // silent for longer than parked devices are
	endIncomplete    = "incomplete"     // a frame did not arrive whole in time
	endFraming       = "framing"        // not a frame, or a wrong CRC
	endUnknown       = "unknown"        // a frame with an unknown number of records
	endStore         = "store"          // Redis did not take the records in time
	endCrowded       = "crowded"        // to make room: it deserved its place least, see admission
	endUnproven      = "unproven"       // an IMEI, and no frame in time
	endSuperseded    = "superseded"     // the device has a newer socket here
	endMoved         = "moved"          // it has a newer socket at another replica, and was silent here
	endDraining      = "draining"       // this replica stops
	endNetwork       = "network"        // reset, unreachable
)

// Errors that end a socket.
var (
	errDraining      = errors.New("gateway: draining")
	errUnknownDevice = errors.New("gateway: device is not in the set")
	errUndecided     = errors.New("gateway: Redis does not say whether the device may be served")
	errTLS           = errors.New("gateway: TLS handshake")
	errCertificate   = errors.New("gateway: certificate of the device")
	errProxy         = errors.New("gateway: PROXY header")
	errGone          = errors.New("gateway: device gave up before its handshake was read")
	errStore         = errors.New("gateway: frame not stored")
	errEnded         = errors.New("gateway: the socket is to end")
)

// reasons maps errors to reasons. The first match counts: what comes from Redis may contain the
// errors of a socket.
var reasons = []struct {
	err    error
	reason string
}{
	{errStore, endStore},
	{teltonika.ErrUnknownCodec, endUnknown}, {teltonika.ErrCount, endUnknown},
	{teltonika.ErrHandshake, endRefused},
	{errUnknownDevice, endUnknownDevice},
	{errGone, endClosed},
	{errDraining, endDraining},
	{errUndecided, endUndecided},
	{io.EOF, endClosed}, {io.ErrUnexpectedEOF, endIncomplete},
	{errCertificate, endCertificate}, {errTLS, endTLS}, {errProxy, endProxy},
	{teltonika.ErrPreamble, endFraming}, {teltonika.ErrTooLong, endFraming},
	{teltonika.ErrTooShort, endFraming}, {teltonika.ErrCRC, endFraming},
}

// session is one device socket. Its own goroutine runs serve.
type session struct {
	g     *Gateway
	conn  net.Conn
	under net.Conn        // the socket below conn: closing TLS would wait for the peer
	raw   syscall.RawConn // of under, for peek

	// Only the session's goroutine uses these.
	reader *teltonika.Reader
	imei   string         // empty until the handshake
	peer   string         // the device's address; empty until the handshake
	claim  Claim          // nil until then
	cas    *x509.CertPool // Config.ClientCAs when the TLS handshake began
	paid   time.Time      // the device has used up its rate until then: see rate.go
	early  bool           // more had come when the last frame of records was acknowledged
	hasty  int            // frames in a row that came so: see noteHaste
	// nothing is waited for any more, and nothing read after it; zero while the socket is served
	lastRead time.Time
	// ends the span of the registration; nil: there is none
	endSpan func(error, ...slog.Attr)

	came    time.Time // when it was accepted
	firstBy time.Time // when its first frame must have come; zero until it is greeted

	// admission's, under its mu.
	standing standing
	since    time.Time // in this standing
	address  netip.Prefix
	group    *group
	place    *list.Element // in the group; nil: it is in none
	left     bool          // for good
	vacated  bool          // another socket has its slot
	over     bool          // run has returned

	ending atomic.Pointer[string] // why the gateway ends the socket; nil: it does not

	mu     sync.Mutex
	frames int  // that have come with a right checksum, up to reports
	ended  bool // serve has returned
	// late is the reason for the end if the read deadline passes. It and the deadline belong to the
	// session's goroutine, and to mu while resting is set.
	late     string
	resting  bool         // the session waits for its device at a frame boundary
	called   bool         // the deadline was moved to end the rest, for a command
	moved    bool         // the device is said to be at another replica, and has not spoken here since
	commands commandState // see command.go
}

func newSession(g *Gateway, conn net.Conn) *session {
	under := transport(conn)
	s := &session{g: g, conn: conn, under: under, raw: rawConn(under), came: time.Now()}
	s.reader = teltonika.NewReader(s, 0)
	return s
}

// Read reads from the device and counts the bytes.
func (s *session) Read(p []byte) (int, error) {
	if !s.lastRead.IsZero() {
		until := time.Now() // TLS then returns what it has, others nothing
		if bytes, _ := peek(s.raw); bytes {
			until = s.lastRead
		}
		_ = s.conn.SetReadDeadline(until) // fails on a closed socket, and so does what follows
	}
	n, err := s.conn.Read(p)
	s.g.metrics.in.Add(float64(n))
	return n, err
}

// send writes to the device within the time for an answer, and counts the bytes.
func (s *session) send(p []byte) (int, error) {
	if err := s.conn.SetWriteDeadline(time.Now().Add(storeTime)); err != nil {
		return 0, err
	}
	if why := s.endReason(); why != "" { // end came before the new deadline
		return 0, fmt.Errorf("%w: %s", errEnded, why)
	}
	n, err := s.conn.Write(p)
	s.g.metrics.out.Add(float64(n))
	return n, err
}

// answer sends a few bytes. A device that does not take even those in time is gone. The error hides
// the socket's own: a write deadline that passed is not a device that was silent.
func (s *session) answer(p []byte) error {
	if _, err := s.send(p); err != nil {
		return fmt.Errorf("gateway: answer: %v", err)
	}
	return nil
}

func (s *session) origin() origin { return origin{s.imei, s.peer} }

// run serves the socket until it ends.
func (s *session) run(ctx context.Context) {
	err := s.serve(ctx)
	_ = s.conn.Close()
	s.g.forget(s)
	if s.claim != nil {
		s.claim.Release()
	}
	reason := cmp.Or(s.finish(), s.reason(err))
	s.g.metrics.disconnects.WithLabelValues(reason).Inc()
	if reason == endFraming {
		s.g.metrics.frames.WithLabelValues("", "rejected").Inc()
		if s.imei != "" {
			s.fault(err, s.reader.Unparsed())
		}
	}
	s.g.cfg.Logger.Debug("device socket ended",
		"imei", s.imei, "peer", named(s.conn.RemoteAddr()), "reason", reason, "error", err)
}

// reason names the reason for an error that ended serve.
func (s *session) reason(err error) string {
	if s.g.draining() {
		return endDraining
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return s.late
	}
	return endNetwork
}

// finish marks the session as ended. It returns the reason if the gateway closed the socket.
func (s *session) finish() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if o := s.commands.pending; o != nil {
		close(o.done)
	}
	return s.endReason()
}

// end makes the session end its socket, from outside. The first reason counts.
func (s *session) end(reason string) {
	s.ending.CompareAndSwap(nil, &reason)
	_ = s.conn.SetDeadline(time.Now())
}

// endReason returns why the gateway ends the socket; "": it does not.
func (s *session) endReason() string {
	if why := s.ending.Load(); why != nil {
		return *why
	}
	return ""
}

// interrupt wakes the session if it waits for its device.
func (s *session) interrupt() { _ = s.conn.SetReadDeadline(time.Now()) }

// within gives the device so much time for what is read next, and names the reason if that passes.
// An end or a drain that came before the new deadline would not interrupt it: then within fails.
func (s *session) within(d time.Duration, late string) error {
	s.late = late
	if err := s.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	switch {
	case s.endReason() != "":
		return errEnded
	case s.g.draining():
		return errDraining
	}
	return nil
}

// serve returns why the socket must end.
func (s *session) serve(ctx context.Context) error {
	err := s.greet(ctx)
	s.greeted(ctx, err)
	s.g.metrics.handshakes.WithLabelValues(handshakeOutcome(err)).Inc()
	if err != nil {
		return err
	}
	s.paid = time.Now()
	s.firstBy = s.paid.Add(s.g.cfg.FirstFrame)
	err = s.converse(ctx)
	s.rescue()
	return err
}

// converse returns why the socket of a device that was accepted must end.
func (s *session) converse(ctx context.Context) error {
	for {
		command, err := s.rest()
		if err != nil {
			return err
		}
		if command != nil {
			if err := s.write(command); err != nil {
				return err
			}
			continue
		}
		started, err := s.reader.Await()
		if called := s.endRest(err == nil); called && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return err
		}
		if !started {
			continue // a keep-alive renews the deadline
		}
		if err := s.within(completeTime, endIncomplete); err != nil {
			return err
		}
		frame, err := s.reader.Next()
		if err != nil {
			return err
		}
		s.reported()
		if err := s.handle(ctx, frame); err != nil {
			return err
		}
	}
}

// rescue stores the messages that have arrived when a socket ends, for whatever reason: unlike
// records they do not come again. Those of a device that may not be served are not wanted.
func (s *session) rescue() {
	if why := s.endReason(); why == endUnknownDevice || why == endCertificate {
		return
	}
	s.lastRead = time.Now().Add(rescueTime)
	for {
		frame, err := s.reader.Next()
		if err != nil {
			return
		}
		if frame.Codec.IsCommand() {
			s.g.metrics.frames.WithLabelValues(frame.Codec.String(), "command").Inc()
			s.takeMessages(frame)
		}
	}
}

// rest prepares for the wait for the device between two frames. It returns a command instead if
// one is to be written now.
func (s *session) rest() (*pendingCommand, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.takeCommand(); o != nil {
		return o, nil
	}
	s.resting = true
	return nil, s.restWithin()
}

// restWithin sets the deadline of the wait for the device. The caller holds mu.
func (s *session) restWithin() error {
	first := time.Until(s.firstBy)
	switch {
	case s.frames == 0 && (!s.moved || first < movedTime): // a keep-alive proves nothing
		return s.within(first, endUnproven)
	case s.moved:
		return s.within(movedTime, endMoved)
	}
	return s.within(idleTime, endIdle)
}

// reported notes a frame.
func (s *session) reported() {
	s.mu.Lock()
	known := s.frames == reports
	s.frames = min(s.frames+1, reports)
	n := s.frames
	s.mu.Unlock()
	if !known {
		s.g.admission.reported(s, n)
	}
}

// endRest reports whether a command ended the rest.
func (s *session) endRest(spoke bool) (called bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	called = s.called
	s.resting, s.called = false, false
	s.moved = s.moved && !spoke
	return called
}

// displace says that the device is at another replica, most likely. It then has less time for a
// sign of life here.
func (s *session) displace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
	if s.resting && !s.called { // otherwise rest sets the deadline later
		_ = s.restWithin() // fails only on a closed socket, or while draining
	}
	if s.g.draining() {
		s.interrupt()
	}
}

// unread reports, without waiting, what has arrived and is not taken yet: bytes, or the end.
func (s *session) unread() (bytes, end bool) {
	bytes, end = peek(s.raw)
	bytes = bytes || s.reader.Buffered() > 0
	if _, ok := s.conn.(*tls.Conn); !ok || end {
		return bytes, end
	}
	// TLS may have taken bytes off the socket already, and the socket's bytes may mean nothing to the
	// device's stream. A read that may not wait shows both.
	s.interrupt()
	started, err := s.reader.Await()
	for !started && err == nil { // a keep-alive: there may be more behind it
		started, err = s.reader.Await()
	}
	return bytes || started, err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
