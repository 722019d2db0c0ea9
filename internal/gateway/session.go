package gateway

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Why a socket ended, as ingest_disconnects_total says it.
const (
	endRefused       = "refused"        // no IMEI, or none in time
	endUnknownDevice = "unknown_device" // not in the set of those that may be served
	endUndecided     = "undecided"      // Redis did not say in time whether it is
	endUntrusted     = "untrusted"      // not from a trusted proxy, on a listener for those
	endProxy         = "proxy"          // from one, but without a PROXY header
	endTLS           = "tls"            // no TLS handshake
	endClosed        = "closed"         // by the device, between frames
	endIdle          = "idle"           // silent for longer than parked devices are
	endIncomplete    = "incomplete"     // a frame did not arrive whole in time
	endFraming       = "framing"        // not a frame, or a wrong CRC
	endUnknown       = "unknown"        // a frame of which the count is not known
	endStore         = "store"          // Redis did not take the records in time
	endCrowded       = "crowded"        // no IMEI for seconds, and too many sockets are like that
	endSuperseded    = "superseded"     // the device has a newer socket here
	// the device has a newer socket at another replica, and was silent here
	endMoved    = "moved"
	endDraining = "draining" // this replica stops
	endNetwork  = "network"  // reset, unreachable
)

// errDraining ends a socket between frames when the replica stops.
var errDraining = errors.New("gateway: draining")

// errUnknownDevice ends a socket whose device is not in the set of those that may be served, and
// errUndecided one of which that cannot be told.
var (
	errUnknownDevice = errors.New("gateway: device is not in the set")
	errUndecided     = fmt.Errorf("gateway: Redis does not say whether the device may be served: %w", os.ErrDeadlineExceeded)
)

// errNoHeader ends a socket without a PROXY header.
var errNoHeader = errors.New("gateway: no PROXY header")

// errEnded ends a socket that was closed from outside, before its last frame was stored.
var errEnded = errors.New("gateway: closed before the frame was stored")

// errGone ends a socket whose device gave up before its handshake was read.
var errGone = errors.New("gateway: gone before its handshake was read")

// session is one device socket. Only its own goroutine uses it, but for Close,
// deadlines, and what stands below those of admission.
type session struct {
	g    *Gateway
	conn net.Conn
	// the socket below conn, which others close: that of TLS would wait to say goodbye
	under  net.Conn
	raw    syscall.RawConn // under's, for peek
	reader *teltonika.Reader
	imei   string    // empty until the handshake
	claim  Claim     // nil until then
	paid   time.Time // until when the socket has used up what a device may have stored: see rate.go

	// in the list of admission, while no IMEI has come; guarded by it
	unidentified *list.Element
	closeReason  atomic.Pointer[string]         // why the socket was closed from outside, if it was
	state        atomic.Uint32                  // bits: see command.go
	pending      atomic.Pointer[pendingCommand] // the command under way; nil: none

	mu       sync.Mutex // guards what follows, and the deadline for reading while resting
	resting  bool       // the session waits for its device at a frame boundary
	called   bool       // it is to look for a pending command before it waits again
	moved    bool       // the device is said to be at another replica since it last spoke
	answered time.Time  // when the device last answered a command
}

func newSession(g *Gateway, conn net.Conn) *session {
	under := transport(conn)
	s := &session{g: g, conn: conn, under: under, raw: rawConn(under)}
	s.reader = teltonika.NewReader(s, 0)
	return s
}

// Read reads from the device, and counts.
func (s *session) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	s.g.metrics.in.Add(float64(n))
	return n, err
}

// run serves the socket to its end, whatever that is.
func (s *session) run(ctx context.Context) {
	reason, err := s.serve(ctx)
	_ = s.conn.Close()
	s.g.forget(s)
	if s.claim != nil {
		s.claim.Release()
	}
	if why := s.closeReason.Load(); why != nil {
		reason = *why
	}
	s.g.metrics.disconnects.WithLabelValues(reason).Inc()
	s.g.cfg.Logger.Debug("device socket ended", "imei", s.imei, "peer", s.conn.RemoteAddr(), "reason", reason, "error", err)
}

// end closes the socket from outside, for a reason of which the first counts.
func (s *session) end(reason string) {
	s.closeReason.CompareAndSwap(nil, &reason)
	_ = s.under.Close()
}

// interrupt wakes the session if it waits for its device.
func (s *session) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }

// within gives the device so much time for what is read next. An interrupt that
// came just before is not lost: draining is set before it.
func (s *session) within(d time.Duration) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if s.g.draining.Load() {
		return errDraining
	}
	return nil
}

// errCalled ends a rest before it has begun.
var errCalled = errors.New("gateway: called")

// rest gives the device as much time as it may be silent between two frames. From now until rise
// the session may be called; errCalled: it was already.
func (s *session) rest() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.called {
		s.called = false
		return errCalled
	}
	s.resting = true
	if s.moved {
		return s.within(movedTime)
	}
	return s.within(idleTime)
}

// rise ends a rest. It says whether the session was called meanwhile, and what it means if the
// device was silent for too long.
func (s *session) rise(spoke bool) (called bool, late string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	called, late = s.called, endIdle
	if s.moved {
		late = endMoved
	}
	s.resting, s.called = false, false
	s.moved = s.moved && !spoke
	return called, late
}

// call has the session look for a pending command as soon as it is between two frames.
func (s *session) call() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = true
	if s.resting {
		s.interrupt()
	}
}

// displace says that the device is at another replica, most likely: it has less time for a sign of
// life here.
func (s *session) displace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
	if s.resting && !s.called { // else the session comes to rest later, and knows
		// fails on a closed socket, which needs none
		_ = s.conn.SetReadDeadline(time.Now().Add(movedTime))
	}
	if s.g.draining.Load() {
		s.interrupt()
	}
}

func (s *session) serve(ctx context.Context) (reason string, err error) {
	if reason, err = s.greet(ctx); err != nil {
		return reason, err
	}
	s.paid = time.Now()
	for {
		s.offer()
		if err := s.rest(); errors.Is(err, errCalled) {
			continue
		} else if err != nil {
			return s.why(err, endIdle), err
		}
		started, err := s.reader.Await()
		called, late := s.rise(err == nil)
		if called && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return s.why(err, late), err
		}
		if !started {
			continue // a keep-alive: it only renews the deadline
		}
		if err := s.within(completeTime); err != nil {
			return s.why(err, endIncomplete), err
		}
		frame, err := s.reader.Next()
		if err != nil {
			if reason = s.why(err, endIncomplete); reason == endFraming {
				s.g.metrics.frames.WithLabelValues("", "rejected").Inc()
			}
			return reason, err
		}
		if reason, err = s.handle(ctx, frame); err != nil {
			return reason, err
		}
	}
}

// greet reads the IMEI, registers the device and accepts it. The registration
// gets a second to land first; without Redis the device is served all the same,
// and the registry heals later.
func (s *session) greet(ctx context.Context) (reason string, err error) {
	outcome := s.g.metrics.handshakes
	if err := s.within(handshakeTime); err != nil {
		return s.why(err, endRefused), err
	}
	if reason, err = s.prepare(); err != nil {
		outcome.WithLabelValues("refused").Inc()
		return reason, err
	}
	imei, err := s.reader.IMEI()
	if err != nil {
		if errors.Is(err, teltonika.ErrHandshake) {
			outcome.WithLabelValues("refused").Inc()
			_ = s.answer([]byte{teltonika.Refuse}) // a courtesy; the socket closes anyway
			return endRefused, err
		}
		outcome.WithLabelValues("incomplete").Inc()
		return s.why(err, endRefused), err
	}
	if !teltonika.LuhnValid(imei) {
		// Genuine devices fail this, too many to refuse.
		s.g.metrics.luhn.Inc()
	}
	s.g.admission.leave(s)
	if a := s.g.authority; a != nil {
		switch a.decide(s.g.stopping, imei) {
		case unknown:
			outcome.WithLabelValues("unknown_device").Inc()
			s.g.cfg.Logger.Debug("device refused, it is not in the set", "imei", imei, "peer", s.conn.RemoteAddr())
			_ = s.answer([]byte{teltonika.Refuse})
			return endUnknownDevice, errUnknownDevice
		case unsure:
			outcome.WithLabelValues("undecided").Inc()
			return s.why(errUndecided, endUndecided), errUndecided
		}
	}
	if reason, err = s.register(ctx, imei); err != nil {
		outcome.WithLabelValues("incomplete").Inc()
		return reason, err
	}
	if err := s.answer([]byte{teltonika.Accept}); err != nil {
		outcome.WithLabelValues("incomplete").Inc()
		return endNetwork, err
	}
	outcome.WithLabelValues("accepted").Inc()
	return "", nil
}

// register claims the device and waits a second for that to land. It waits its turn, and is over
// before the device has its answer: whoever does not take that keeps nobody waiting.
func (s *session) register(ctx context.Context, imei string) (reason string, err error) {
	select {
	case s.g.admission.slots <- struct{}{}:
		defer func() { <-s.g.admission.slots }()
	case <-s.g.stopping:
		return endDraining, errDraining
	}
	// What it said may have waited: here, in the backlog of a full replica, or of one that was
	// suspended. A device that gave up meanwhile is elsewhere, and its word there is newer than this
	// one.
	if _, end := s.look(); end {
		return endClosed, errGone
	}
	s.imei = imei
	s.claim = s.g.claim(s)
	landing, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := s.claim.Wait(landing); err != nil {
		failpoint.Hit(failpoint.UnansweredRegister)
		// The registry has counted it.
		s.g.cfg.Logger.Debug("device served before its registration landed", "imei", imei, "error", err)
	}
	return "", nil
}

// prepare does what comes before the IMEI on listeners for TLS and for proxies, within the
// handshake's deadline.
func (s *session) prepare() (reason string, err error) {
	switch c := s.conn.(type) {
	case *tls.Conn:
		if err := c.SetWriteDeadline(time.Now().Add(handshakeTime)); err != nil {
			return endTLS, err
		}
		// Elsewhere: a key exchange needs a deep stack, which would stay with this goroutine.
		done := make(chan error, 1)
		go func() { done <- c.Handshake() }()
		if err := <-done; err != nil {
			return s.ended(err, endTLS), fmt.Errorf("gateway: TLS handshake: %w", err)
		}
	case *proxyproto.Conn:
		if c.ProxyHeader() == nil {
			_, err := c.Read(nil) // says why not
			err = cmp.Or(err, errNoHeader)
			return s.ended(err, endProxy), fmt.Errorf("gateway: PROXY header: %w", err)
		}
	}
	return "", nil
}

// ended is why, for what may fail for reasons of its own.
func (s *session) ended(err error, own string) string {
	if reason := s.why(err, own); reason != endNetwork {
		return reason
	}
	return own
}

// look tells without waiting what has arrived and is not taken yet: bytes, or the end.
func (s *session) look() (bytes, end bool) {
	bytes, end = peek(s.raw)
	bytes = bytes || s.reader.Buffered() > 0
	if _, ok := s.conn.(*tls.Conn); !ok || end {
		return bytes, end
	}
	// The socket shows neither what TLS has taken off it already nor what its bytes mean. A read that
	// may not wait does.
	if err := s.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return bytes, true
	}
	started, err := s.reader.Await()
	for !started && err == nil { // a keep-alive: there may be more behind it
		started, err = s.reader.Await()
	}
	return bytes || started, err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// recordCodecs are those that carry records; unknownCodec is the label of all that carry nothing
// known: a label for each of 256 ids would be a peer's to choose.
var recordCodecs = []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16}

const unknownCodec = "unknown"

// handle stores one frame and acknowledges it. An error means that the socket
// must be closed.
func (s *session) handle(ctx context.Context, frame teltonika.Frame) (reason string, err error) {
	codec, outcome := frame.Codec.String(), "acknowledged"
	defer func() { s.g.metrics.frames.WithLabelValues(codec, outcome).Inc() }()
	if frame.Codec.IsCommand() {
		outcome = "command"
		s.hear(frame)
		return "", nil
	}
	s.claim.FrameReceived()
	until := time.Now().Add(storeTime)
	if err := s.pace(frame); err != nil {
		outcome = "abandoned"
		if !slices.Contains(recordCodecs, frame.Codec) {
			codec = unknownCodec
		}
		return endNetwork, err
	}
	began := time.Now()
	records, fault, err := s.g.store.keep(ctx, until, s.imei, frame)
	if errors.Is(fault, teltonika.ErrUnknownCodec) {
		codec = unknownCodec
	}
	if err != nil {
		outcome = "failed"
		return endStore, err
	}
	if fault == nil {
		s.g.metrics.records.WithLabelValues(codec).Add(float64(records))
	} else {
		outcome = "dead"
		s.g.metrics.dead.Inc()
		s.g.cfg.Logger.Debug("frame kept as a dead letter", "imei", s.imei, "codec", codec, "error", fault)
	}
	if errors.Is(fault, teltonika.ErrUnknownCodec) || errors.Is(fault, teltonika.ErrCount) {
		return endUnknown, fault
	}
	// A frame that is here already when this one is acknowledged is no answer to that, and so no
	// evidence.
	ahead, end := s.look()
	ahead = ahead || end
	var ack [4]byte
	if err := s.answer(teltonika.AppendAck(ack[:0], int(frame.Count))); err != nil {
		outcome = "unanswered"
		return endNetwork, err
	}
	s.g.metrics.latency.Observe(time.Since(began).Seconds())
	if !ahead {
		s.claim.FrameAcked()
	}
	s.state.Or(acknowledged)
	return "", nil
}

// answer writes a few bytes; a device that does not even take those in time is
// gone.
func (s *session) answer(p []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(storeTime)); err != nil {
		return err
	}
	n, err := s.conn.Write(p)
	s.g.metrics.out.Add(float64(n))
	return err
}

// why names the reason for which reading ended; late is the one for a deadline
// that has passed.
func (s *session) why(err error, late string) string {
	switch {
	case s.g.draining.Load():
		return endDraining
	case errors.Is(err, os.ErrDeadlineExceeded):
		return late
	case errors.Is(err, io.EOF):
		return endClosed
	case errors.Is(err, io.ErrUnexpectedEOF):
		return endIncomplete
	case errors.Is(err, teltonika.ErrPreamble), errors.Is(err, teltonika.ErrTooLong),
		errors.Is(err, teltonika.ErrTooShort), errors.Is(err, teltonika.ErrCRC):
		return endFraming
	}
	return endNetwork
}
