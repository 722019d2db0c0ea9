package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// What [Gateway.Command] returns beside an answer.
var (
	// ErrNotConnected: nothing was written to the device.
	ErrNotConnected = errors.New("gateway: not connected")
	// ErrUnanswered: the command was written, and its socket ended or its time was up without an
	// answer. The device may have executed it.
	ErrUnanswered = errors.New("gateway: no answer")
	// ErrWrongDevice: what is at the socket says that it is another device than the command was for,
	// and has not executed it.
	ErrWrongDevice = errors.New("gateway: wrong device")
)

// quietTime is how long a socket must have been quiet after an answer before the next command is
// written. A device writes the frames of one answer one behind the other, so that only the network
// can part them: three seconds cover a segment that TCP had to send three times, after one second
// and after two more.
const quietTime = 3 * time.Second

// What a session's state says about commands, in bits. None is ever taken back: only a new socket
// begins without them.
const (
	acknowledged = 1 << iota // a frame of this session was: from now on the device takes commands
	// a response of codec 12 may come, or came, that is no answer to the command under way
	doubtful12
	doubtful14 // the same of codec 14
)

// doubtful is the bit of a codec.
func doubtful(c teltonika.Codec) uint32 {
	if c == teltonika.Codec14 {
		return doubtful14
	}
	return doubtful12
}

// pendingCommand is one command on its way through a session. A session has one or none.
type pendingCommand struct {
	codec teltonika.Codec
	imei  teltonika.IMEI
	frame []byte
	ready chan struct{} // closed when the session takes commands
	gone  chan struct{} // closed when the socket has ended
	heard chan answer   // one slot

	mu      sync.Mutex
	open    bool  // ready is closed
	allowed bool  // to be written at the next frame boundary at which nothing is unread
	tried   bool  // and it was
	failed  error // nothing of it went out
	over    bool  // nobody waits for an answer any more
}

type answer struct {
	text []byte
	err  error
}

// Command is one command for a device.
type Command struct {
	IMEI  string
	Codec teltonika.Codec // 12 or 14
	Text  []byte
	// Expires is until when the device's session may take to begin, by this process' clock.
	Expires time.Time
	// Permit is asked once, when the command could be written, whether it is to be written still, and
	// how long an answer may take. It is given a context that ends with Expires. Nothing is written if
	// it returns an error.
	Permit func(context.Context) (time.Duration, error)
}

// Command sends a command to the newest socket of its device here and returns the text of the
// answer's first frame. It waits until a frame of that socket's session has been acknowledged and
// until the socket was quiet for three seconds after an earlier answer, asks for the permit, and
// writes it, but not between a frame of records and its acknowledgement. One command at a time is
// under way on a socket. It closes a socket on which an answer could be taken for the wrong
// command's: the package comment says when.
//
// Nothing was written if the error is ErrNotConnected, what Permit returned, or the cause of the
// end of ctx or context.DeadlineExceeded, before that was asked. The others are ErrUnanswered, also
// when ctx ends later, and ErrWrongDevice.
func (g *Gateway) Command(ctx context.Context, c Command) ([]byte, error) {
	waiting, cancel := context.WithDeadline(ctx, c.Expires)
	defer cancel()
	o, s, err := g.settle(waiting, c)
	if err != nil {
		return nil, err
	}
	defer s.pending.CompareAndSwap(o, nil)
	if s.state.Load()&doubtful(o.codec) != 0 {
		_ = s.under.Close()
		return nil, fmt.Errorf("%w: %w; the socket was closed, the device comes back", ErrNotConnected, errDoubtful)
	}
	left, err := c.Permit(waiting)
	if err != nil {
		return nil, err
	}
	ctx, cancelAnswer := context.WithTimeout(ctx, left)
	defer cancelAnswer()
	return s.exchange(ctx, o)
}

// errDoubtful is why a socket is closed instead of used.
var errDoubtful = errors.New("an earlier command on the socket went unanswered, or an answer came that no command waited for, " +
	"and what comes next could pass for this one's answer")

// settle puts a pending command to the newest socket of its device, and to the next one if that
// ends, until one takes commands and is quiet.
func (g *Gateway) settle(ctx context.Context, c Command) (*pendingCommand, *session, error) {
	for {
		o, err := newPendingCommand(c)
		if err != nil {
			return nil, nil, err
		}
		s, err := g.place(c.IMEI, o)
		if err != nil {
			return nil, nil, err
		}
		over, err := o.settle(ctx, s)
		if err != nil {
			s.pending.CompareAndSwap(o, nil)
			return nil, nil, err
		}
		if !over {
			return o, s, nil
		}
	}
}

// settle waits until a pending command may be written to s: over says that the socket ended before
// that.
func (o *pendingCommand) settle(ctx context.Context, s *session) (over bool, err error) {
	select { // whoever may begin begins, even if its time should be up by the clock here
	case <-o.ready:
	default:
		select {
		case <-o.ready:
		case <-o.gone:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	left := s.unquiet()
	if left <= 0 || s.state.Load()&doubtful(o.codec) != 0 {
		return false, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-o.gone:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func newPendingCommand(c Command) (*pendingCommand, error) {
	o := &pendingCommand{codec: c.Codec, ready: make(chan struct{}), gone: make(chan struct{}), heard: make(chan answer, 1)}
	m := teltonika.Message{Type: teltonika.TypeCommand, Text: c.Text}
	var err error
	if o.imei, err = teltonika.ParseIMEI(c.IMEI); err != nil {
		return nil, fmt.Errorf("gateway: command: %w", err)
	}
	if c.Codec == teltonika.Codec14 {
		m.IMEI = o.imei
	}
	if o.frame, err = teltonika.AppendMessages(nil, c.Codec, m); err != nil {
		return nil, fmt.Errorf("gateway: command: %w", err)
	}
	return o, nil
}

// place puts a pending command to the newest socket of its device.
func (g *Gateway) place(imei string, o *pendingCommand) (*session, error) {
	// forget holds it too: a session that is found here tells its pending command when it ends
	g.mu.Lock()
	s := g.newest[imei]
	placed := s != nil && s.pending.CompareAndSwap(nil, o)
	g.mu.Unlock()
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: no socket of the device is here", ErrNotConnected)
	case !placed:
		return nil, fmt.Errorf("%w: another command is under way on the socket", ErrNotConnected)
	}
	// The session sets its state and then looks for a pending command. This looks the other way round:
	// one of them sees the other.
	if s.state.Load()&acknowledged != 0 {
		o.begin()
	}
	return s, nil
}

// exchange sees to it that the pending command is written, and waits for what comes of it.
func (s *session) exchange(ctx context.Context, o *pendingCommand) ([]byte, error) {
	o.mu.Lock()
	o.allowed = true
	o.mu.Unlock()
	s.call()

	why := ""
	select {
	case a := <-o.heard:
		return a.text, a.err
	case <-o.gone:
		why = "the socket ended"
	case <-ctx.Done():
		why = "its time was up"
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	select {
	case a := <-o.heard: // at the same time
		return a.text, a.err
	default:
	}
	if !o.tried {
		return nil, fmt.Errorf("%w: %s before it could be sent", ErrNotConnected, why)
	}
	if o.failed != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, o.failed)
	}
	// the vendor allows one command at a time, whichever codec the next has
	s.state.Or(doubtful12 | doubtful14)
	return nil, fmt.Errorf("%w: %s; the device may have executed it", ErrUnanswered, why)
}

// offer has the pending command under way begin, or writes it, if there is one and its time has
// come. Only the session's own goroutine calls it, between two frames. What has arrived by then is
// read first: it is no answer to what was not written yet.
func (s *session) offer() {
	o := s.pending.Load()
	if o == nil || s.state.Load()&acknowledged == 0 {
		return
	}
	o.begin()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.allowed || o.tried || o.over {
		return
	}
	// Behind a deadline that has passed, that of a call, nothing can be seen.
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if bytes, end := s.look(); !bytes && !end {
		s.write(o)
	}
}

// write puts a pending command on the wire. o.mu is held.
func (s *session) write(o *pendingCommand) {
	o.tried = true
	if why := s.closeReason.Load(); why != nil {
		o.failed = fmt.Errorf("the socket was closed: %s", *why)
	} else if s.state.Load()&doubtful(o.codec) != 0 { // since Command looked
		o.failed = errDoubtful
	} else if err := s.conn.SetWriteDeadline(time.Now().Add(storeTime)); err != nil {
		o.failed = err
	} else if n, err := s.conn.Write(o.frame); err != nil && n == 0 {
		o.failed = err
	} else if err == nil {
		return
	}
	_ = s.under.Close() // half a command makes what follows unreadable
}

// begin says that the session takes commands.
func (o *pendingCommand) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		o.open = true
		close(o.ready)
	}
}

// unquiet is how long the socket must still be quiet before another command is written.
func (s *session) unquiet() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered.IsZero() {
		return 0
	}
	return time.Until(s.answered.Add(s.g.cfg.Quiet))
}

// hear looks whether a frame of codec 12 to 15 is what a pending command waits for. Codec 12 has
// nothing that says so, hence any response is; codec 14 names its device. A response that no order
// waits for makes the socket doubtful: it is the rest of an answer, a late one, or what the device
// sends of itself, and there may be more of that. What cannot be read is only counted, as a frame.
func (s *session) hear(frame teltonika.Frame) {
	messages, err := teltonika.DecodeMessages(frame.Body)
	if err != nil || frame.Codec != teltonika.Codec12 && frame.Codec != teltonika.Codec14 {
		return
	}
	for m := range messages.All() {
		if m.Type != teltonika.TypeResponse && (m.Type != teltonika.TypeNACK || frame.Codec != teltonika.Codec14) {
			continue
		}
		if o := s.pending.Load(); o == nil || !s.answers(o, frame.Codec, m) {
			s.state.Or(doubtful(frame.Codec))
			s.g.metrics.stray.Inc()
		}
	}
}

// answers gives a message to the pending command that waits for it. False: it is no answer to that.
func (s *session) answers(o *pendingCommand, codec teltonika.Codec, m teltonika.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if codec != o.codec || !o.tried || o.over {
		return false
	}
	a := answer{text: append([]byte(nil), m.Text...)} // m is a view
	if codec == teltonika.Codec14 && (m.Type == teltonika.TypeNACK || m.IMEI != o.imei) {
		a = answer{err: fmt.Errorf("%w: the device says that it is %s", ErrWrongDevice, m.IMEI)}
	}
	s.mu.Lock()
	s.answered = time.Now() // before anybody can know of the answer and send the next command
	s.mu.Unlock()
	o.over = true
	o.heard <- a
	return true
}
