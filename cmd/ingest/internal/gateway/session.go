package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Reasons for the end of a socket, as in ingest_disconnects_total.
const (
	endRefused       = "refused" // no IMEI, or none in time
	endUnknownDevice = "unknown_device"
	endUndecided     = "undecided" // no answer from Redis in time
	endUntrusted     = "untrusted" // not from a trusted proxy, on a listener for proxies
	endProxy         = "proxy"     // from a trusted proxy, but without a PROXY header
	endTLS           = "tls"
	endCertificate   = "certificate" // missing, for another device, or not valid
	endClosed        = "closed"      // by the device, between frames
	endIdle          = "idle"        // silent for longer than parked devices are
	endIncomplete    = "incomplete"  // a frame did not arrive whole in time
	endFraming       = "framing"
	endUnknown       = "unknown"  // unknown number of records
	endStore         = "store"    // Redis did not take it in time
	endCrowded       = "crowded"  // see package doors
	endUnproven      = "unproven" // an IMEI, but nothing to store in time
	endMoved         = "moved"    // the device has a newer socket
	endDraining      = "draining"
	endNetwork       = "network" // reset, unreachable
)

var (
	errDraining      = errors.New("gateway: draining")
	errUnknownDevice = errors.New("gateway: device is not in the set")
	errUndecided     = errors.New("gateway: Redis does not say whether the device may be served")
	errTLS           = errors.New("gateway: TLS handshake")
	errCertificate   = errors.New("gateway: certificate of the device")
	errProxy         = errors.New("gateway: PROXY header")
	errCrowded       = errors.New("gateway: no place for the device")
	errGone          = errors.New("gateway: device gave up before its handshake was read")
	errStore         = errors.New("gateway: frame not stored")
	errEnded         = errors.New("gateway: the socket is to end")
)

// The first match wins: an error from Redis may wrap a socket's.
var reasons = []struct {
	err    error
	reason string
}{
	{errStore, endStore},
	{teltonika.ErrUnknownCodec, endUnknown}, {teltonika.ErrCount, endUnknown},
	{teltonika.ErrHandshake, endRefused},
	{errUnknownDevice, endUnknownDevice},
	{errGone, endClosed}, {errCrowded, endCrowded},
	{errDraining, endDraining},
	{errUndecided, endUndecided},
	{io.EOF, endClosed}, {io.ErrUnexpectedEOF, endIncomplete},
	{errCertificate, endCertificate}, {errTLS, endTLS}, {errProxy, endProxy},
	{teltonika.ErrPreamble, endFraming}, {teltonika.ErrTooLong, endFraming},
	{teltonika.ErrTooShort, endFraming}, {teltonika.ErrCRC, endFraming},
}

type session struct {
	g    *Gateway
	conn net.Conn
	layers
	raw syscall.RawConn // the socket's, for peek

	// Only the session's goroutine uses these.
	reader *teltonika.Reader
	origin // empty until the handshake, like claim
	claim  Claim
	paid   time.Time // used up its rate until then
	early  bool      // more had arrived when the last frame of records was acknowledged
	hasty  int       // consecutive early frames
	// If set, reads return only data that has already arrived, and nothing after this time.
	lastRead time.Time
	endSpan  func(error, ...slog.Attr)

	came    time.Time
	firstBy time.Time // deadline of the first frame; zero until it is greeted

	guest *doors.Guest // in the hall, or in places; only the session's goroutine changes it

	ending   atomic.Pointer[string]             // set by end
	giveUp   atomic.Pointer[context.CancelFunc] // ends the waits of greet
	accepted atomic.Bool

	mu    sync.Mutex
	spoke bool // something that it sent was stored
	ended bool // serve has returned
	// late is the reason to report if the read deadline passes. It and the deadline belong to the
	// session's goroutine, and to mu while resting is set.
	late     string
	resting  bool // the session waits for its device at a frame boundary
	called   bool // the deadline was moved to end the rest, for a command
	commands commandState
}

func newSession(g *Gateway, conn net.Conn) *session {
	s := &session{g: g, conn: conn, layers: unwrap(conn), came: time.Now()}
	s.raw = rawConn(s.under)
	s.reader = teltonika.NewReader(s, 0)
	s.guest = s.newGuest()
	return s
}

func (s *session) Read(p []byte) (int, error) {
	if !s.lastRead.IsZero() {
		until := time.Now() // TLS returns what it has; others nothing
		if bytes, _ := peek(s.raw); bytes {
			until = s.lastRead
		}
		_ = s.conn.SetReadDeadline(until) // fails on a closed socket, and so does the read
	}
	n, err := s.conn.Read(p)
	s.g.metrics.in.Add(float64(n))
	return n, err
}

func (s *session) send(p []byte) (int, error) {
	if err := s.conn.SetWriteDeadline(time.Now().Add(storeTime)); err != nil {
		return 0, err
	}
	if why := s.endReason(); why != "" { // end was called before the new deadline was set
		return 0, fmt.Errorf("%w: %s", errEnded, why)
	}
	n, err := s.conn.Write(p)
	s.g.metrics.out.Add(float64(n))
	return n, err
}

// answer's error does not wrap the socket's own: a missed write deadline must not look like a
// silent device.
func (s *session) answer(p []byte) error {
	if _, err := s.send(p); err != nil {
		return fmt.Errorf("gateway: answer: %v", err)
	}
	return nil
}

func (s *session) newGuest() *doors.Guest {
	return &doors.Guest{End: func() { s.end(endCrowded) }}
}

// identified moves the socket from the hall to a device's place. It waits there meanwhile: to
// refuse a device would silence it for minutes.
func (s *session) identified(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	device := s.newGuest()
	if err := s.g.places.Wait(ctx, device, s.addr()); err != nil {
		if s.g.draining() {
			return errDraining
		}
		return errCrowded
	}
	s.guest.Leave()
	s.guest = device
	return nil
}

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

func (s *session) finish() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if o := s.commands.pending; o != nil {
		close(o.done)
	}
	return s.endReason()
}

// end is called by other goroutines. The first reason wins. Without an accepted device there is
// nothing to rescue.
func (s *session) end(reason string) {
	s.ending.CompareAndSwap(nil, &reason)
	if giveUp := s.giveUp.Load(); giveUp != nil {
		(*giveUp)()
	}
	if s.accepted.Load() {
		_ = s.conn.SetDeadline(time.Now())
	} else {
		_ = s.under.Close()
	}
}

func (s *session) endReason() string {
	if why := s.ending.Load(); why != nil {
		return *why
	}
	return ""
}

func (s *session) interrupt() { _ = s.conn.SetReadDeadline(time.Now()) }

// within fails after an end or a drain, whose own deadline it would override.
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

func (s *session) serve(ctx context.Context) error {
	err := s.greet(ctx)
	s.greeted(ctx, err)
	s.g.metrics.handshakes.WithLabelValues(handshakeOutcome(err)).Inc()
	if err != nil {
		return err
	}
	s.accepted.Store(true)
	s.paid = time.Now()
	s.firstBy = s.paid.Add(s.g.cfg.FirstFrame)
	err = s.converse(ctx)
	s.rescue()
	return err
}

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
		if called := s.endRest(); called && errors.Is(err, os.ErrDeadlineExceeded) {
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
		if err := s.handle(ctx, frame); err != nil {
			return err
		}
	}
}

// rescue stores the messages that have arrived: unlike records they are not sent again.
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

// rest prepares to wait for the device between two frames, or returns a command that is due.
func (s *session) rest() (*pendingCommand, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.takeCommand(); o != nil {
		return o, nil
	}
	s.resting = true
	return nil, s.restWithin()
}

// The caller holds mu.
func (s *session) restWithin() error {
	if !s.spoke { // a keep-alive proves nothing
		return s.within(time.Until(s.firstBy), endUnproven)
	}
	return s.within(idleTime, endIdle)
}

// speaks notes that something of the device's was stored.
func (s *session) speaks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoke = true
}

func (s *session) endRest() (called bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	called = s.called
	s.resting, s.called = false, false
	return called
}

func (s *session) unread() (bytes, end bool) {
	bytes, end = peek(s.raw)
	bytes = bytes || len(s.reader.Unparsed()) > 0
	if s.tls == nil || end {
		return bytes, end
	}
	// TLS may already have taken bytes off the socket, and bytes in the socket need not be device
	// data. A read that may not wait shows both.
	s.interrupt()
	started, err := s.reader.Await()
	for !started && err == nil { // a keep-alive: more data may follow
		started, err = s.reader.Await()
	}
	return bytes || started, err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// hasty consecutive early frames show that a device does not wait for acknowledgements.
const hasty = 3

// errUnawaited is the fault of a device that takes a frame for delivered once TCP has it.
var errUnawaited = errors.New("gateway: frames come before the ones before them were acknowledged; " +
	"the device loses what is under way when a connection ends")

// handle requires the socket to be closed after an error.
func (s *session) handle(ctx context.Context, frame teltonika.Frame) error {
	codec, outcome := frame.Codec.String(), "acknowledged"
	if !frame.Codec.HasRecords() && !frame.Codec.IsCommand() {
		codec = "unknown" // one label per id would let a peer create 256
	}
	defer func() { s.g.metrics.frames.WithLabelValues(codec, outcome).Inc() }()
	if frame.Codec.IsCommand() {
		outcome = "command"
		s.early = false
		s.takeMessages(frame)
		return s.pace(frame)
	}
	s.noteHaste(frame)
	s.claim.Touch()
	until := time.Now().Add(storeTime)
	if err := s.pace(frame); err != nil {
		outcome = "abandoned"
		return err
	}
	began := time.Now()
	kept, err := s.g.store.keep(ctx, until, s.origin, frame)
	if err != nil {
		outcome = "failed"
		return fmt.Errorf("%w: %w", errStore, err)
	}
	switch {
	case kept.fault == nil:
		s.g.metrics.records.WithLabelValues(codec).Add(float64(kept.records))
		if kept.records > 0 {
			s.speaks()
			s.guest.Earn()
		}
	case kept.repeated:
		outcome = "repeated"
	default:
		outcome = "dead"
		s.g.metrics.dead.Inc()
		s.fault(kept.fault, frame.Raw)
	}
	if kept.mustRepeat() {
		return kept.fault
	}
	bytes, _ := s.unread()
	var ack [4]byte
	if err := s.answer(teltonika.AppendAck(ack[:0], int(frame.Count))); err != nil {
		outcome = "unanswered"
		return err
	}
	s.g.metrics.latency.Observe(time.Since(began).Seconds())
	s.early = bytes
	s.acceptCommands()
	return nil
}

// mustRepeat reports whether an undecodable frame stays unacknowledged, because its number of
// records is unknown. A repeat is already kept, and would come for ever.
func (k kept) mustRepeat() bool {
	unknown := errors.Is(k.fault, teltonika.ErrUnknownCodec) || errors.Is(k.fault, teltonika.ErrCount)
	return unknown && !k.repeated
}

func (s *session) noteHaste(frame teltonika.Frame) {
	if !s.early {
		s.hasty = 0
		return
	}
	if s.hasty++; s.hasty == hasty {
		s.fault(errUnawaited, frame.Raw)
	}
}
