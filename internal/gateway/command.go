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
	// ErrUnanswered: the command was written, and its socket ended or its time was up without an answer. The device may have
	// executed it.
	ErrUnanswered = errors.New("gateway: no answer")
	// ErrWrongDevice: what is at the socket says that it is another device than the command was for, and has not executed it.
	ErrWrongDevice = errors.New("gateway: wrong device")
)

// What a session's state says about commands, in bits.
const (
	acknowledged = 1 << iota // a frame of this session was: from now on the device takes commands
	answering                // a frame is being handled; the device reads its acknowledgement before anything else
	owing                    // a command went unanswered, and a late answer could be taken for the next one's
)

// order is one command on its way through a session. A session has one or none.
type order struct {
	codec teltonika.Codec
	imei  teltonika.IMEI
	frame []byte
	ready chan struct{} // closed when the session takes commands
	gone  chan struct{} // closed when the socket has ended
	heard chan answer   // one slot

	mu      sync.Mutex
	open    bool  // ready is closed
	allowed bool  // to be written as soon as the device waits for nothing else
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
	// Permit is asked once, when the command could be written, whether it is to be written still, and how long an answer may
	// take. It is given a context that ends with Expires. Nothing is written if it returns an error.
	Permit func(context.Context) (time.Duration, error)
}

// Command sends a command to the newest socket of its device here and returns the text of the answer. It waits until a frame of that
// socket's session has been acknowledged, asks for the permit, and writes it, but not between a frame of records and its
// acknowledgement. One command at a time is under way on a socket.
//
// Nothing was written if the error is ErrNotConnected, what Permit returned, or the cause of the end of ctx or
// context.DeadlineExceeded, before that was asked. The others are ErrUnanswered, also when ctx ends later, and ErrWrongDevice.
func (g *Gateway) Command(ctx context.Context, c Command) ([]byte, error) {
	waiting, cancel := context.WithDeadline(ctx, c.Expires)
	defer cancel()
	o, s, err := g.settle(waiting, c)
	if err != nil {
		return nil, err
	}
	defer s.order.CompareAndSwap(o, nil)
	if s.state.Load()&owing != 0 {
		_ = s.under.Close()
		return nil, fmt.Errorf("%w: an earlier command on the socket went unanswered, and a late answer would pass for this one's; the socket was closed, the device comes back", ErrNotConnected)
	}
	left, err := c.Permit(waiting)
	if err != nil {
		return nil, err
	}
	ctx, cancelAnswer := context.WithTimeout(ctx, left)
	defer cancelAnswer()
	return s.exchange(ctx, o)
}

// settle puts an order to the newest socket of its device, and to the next one if that ends, until one takes commands.
func (g *Gateway) settle(ctx context.Context, c Command) (*order, *session, error) {
	for {
		o, err := newOrder(c)
		if err != nil {
			return nil, nil, err
		}
		s, err := g.place(c.IMEI, o)
		if err != nil {
			return nil, nil, err
		}
		select { // whoever may begin begins, even if its time should be up by the clock here
		case <-o.ready:
			return o, s, nil
		default:
		}
		select {
		case <-o.ready:
			return o, s, nil
		case <-o.gone:
		case <-ctx.Done():
			s.order.CompareAndSwap(o, nil)
			return nil, nil, context.Cause(ctx)
		}
	}
}

func newOrder(c Command) (*order, error) {
	o := &order{codec: c.Codec, ready: make(chan struct{}), gone: make(chan struct{}), heard: make(chan answer, 1)}
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

// place puts an order to the newest socket of its device.
func (g *Gateway) place(imei string, o *order) (*session, error) {
	g.mu.Lock() // forget holds it too: a session that is found here tells its order when it ends
	s := g.newest[imei]
	placed := s != nil && s.order.CompareAndSwap(nil, o)
	g.mu.Unlock()
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: no socket of the device is here", ErrNotConnected)
	case !placed:
		return nil, fmt.Errorf("%w: another command is under way on the socket", ErrNotConnected)
	}
	// The session sets its state and then looks for an order, this looks the other way round: one of them sees the other.
	if s.state.Load()&acknowledged != 0 {
		o.begin()
	}
	return s, nil
}

// exchange sees to it that the order is written, and waits for what comes of it.
func (s *session) exchange(ctx context.Context, o *order) ([]byte, error) {
	o.mu.Lock()
	o.allowed = true
	if s.state.Load()&answering == 0 {
		s.write(o)
	} // else the session does when it has acknowledged
	o.mu.Unlock()

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
	s.state.Or(owing)
	return nil, fmt.Errorf("%w: %s; the device may have executed it", ErrUnanswered, why)
}

// write puts an order on the wire. o.mu is held.
func (s *session) write(o *order) {
	if !o.allowed || o.tried || o.over {
		return
	}
	o.tried = true
	if because := s.because.Load(); because != nil {
		o.failed = fmt.Errorf("the socket was closed: %s", *because)
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
func (o *order) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		o.open = true
		close(o.ready)
	}
}

// busy and free enclose the handling of a frame of records.
func (s *session) busy() { s.state.Or(answering) }

func (s *session) free() {
	s.state.Or(acknowledged)
	s.state.And(^uint32(answering))
	if o := s.order.Load(); o != nil {
		o.begin()
		o.mu.Lock()
		s.write(o)
		o.mu.Unlock()
	}
}

// hear looks whether a frame of codec 12 to 15 is what an order waits for. Codec 12 has nothing that says so, hence any
// response is; codec 14 names its device. What nobody asked for, and what cannot be read, is only counted, as a frame.
func (s *session) hear(frame teltonika.Frame) {
	messages, err := teltonika.DecodeMessages(frame.Body)
	if err != nil {
		return
	}
	for m := range messages.All() {
		if m.Type != teltonika.TypeResponse && (m.Type != teltonika.TypeNACK || frame.Codec != teltonika.Codec14) {
			continue
		}
		if o := s.order.Load(); o != nil && o.hear(frame.Codec, m) {
			return
		}
		s.state.And(^uint32(owing)) // it came after all, and nobody can mistake it any more
	}
}

// hear takes an answer, unless it is none to this order.
func (o *order) hear(codec teltonika.Codec, m teltonika.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if codec != o.codec || !o.tried || o.over {
		return false
	}
	a := answer{text: append([]byte(nil), m.Text...)} // m is a view
	if codec == teltonika.Codec14 && (m.Type == teltonika.TypeNACK || m.IMEI != o.imei) {
		a = answer{err: fmt.Errorf("%w: the device says that it is %s", ErrWrongDevice, m.IMEI)}
	}
	o.over = true
	o.heard <- a
	return true
}
