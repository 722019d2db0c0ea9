package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

var (
	// ErrNotConnected means that nothing was written to the device.
	ErrNotConnected = errors.New("gateway: not connected")
	// ErrUnanswered means that the command was written, and the device may have executed it.
	ErrUnanswered = errors.New("gateway: no answer")
	// ErrWrongDevice means that another device than the one addressed is at the socket. It has not
	// executed the command.
	ErrWrongDevice = errors.New("gateway: wrong device")
	// ErrAmbiguous accompanies everything that may be the answer, a line each: see the package
	// comment.
	ErrAmbiguous = errors.New("gateway: ambiguous answer")
)

// quietTime covers a segment that TCP had to send three times, after one second and after two more:
// only the network can separate an answer's frames.
const quietTime = 3 * time.Second

// Command is a command for a device.
type Command struct {
	IMEI  string
	Codec teltonika.Codec // 12 or 14
	Text  []byte
	// Expires, by this process' clock, is the last time to begin to write it.
	Expires time.Time
	// Permit is called once, when the command can be written. It returns the time allowed for an
	// answer, or an error: then nothing is written. Its context ends at Expires.
	Permit func(context.Context) (time.Duration, error)
}

// commandState is guarded by the session's mu.
type commandState struct {
	pending  *pendingCommand // nil: none
	accepted bool            // a frame was acknowledged: the device takes commands now
	answered time.Time
	written  bool
	unsure   uint8 // bits: see bitOf; cleared only by a new socket
}

func bitOf(codec teltonika.Codec) uint8 {
	if codec == teltonika.Codec14 {
		return 2
	}
	return 1
}

type pendingCommand struct {
	codec teltonika.Codec
	imei  teltonika.IMEI
	frame []byte
	ready chan struct{} // closed when the session takes commands
	done  chan struct{} // closed at the answer or the socket's end

	// Guarded by the session's mu.
	permitted bool  // to be written at the next frame boundary with nothing unread
	written   bool  // begun
	unsure    bool  // responses may be something other than the answer
	failed    error // why the session began to write and sent nothing
	answered  bool
	text      []byte // if unsure, all that may be the answer: see ErrAmbiguous
	refused   error  // the answer shows that the device is a different one

	heard chan struct{} // closed at the first response, if unsure
}

// candidates bounds the bytes of possible answers that are returned.
const candidates = 8 << 10

// Command sends a command to its device's newest socket here and returns the text of the answer's
// first frame.
//
// Nothing was written if the error is ErrNotConnected, Permit's own, or, before Permit was called,
// context.DeadlineExceeded or the cause of ctx's end. The other errors are ErrUnanswered, also if
// ctx ends later, ErrWrongDevice, and, beside all responses within three seconds, ErrAmbiguous.
func (g *Gateway) Command(ctx context.Context, c Command) ([]byte, error) {
	waiting, cancel := context.WithDeadline(ctx, c.Expires)
	defer cancel()
	s, o, err := g.place(waiting, c)
	if err != nil {
		return nil, err
	}
	defer s.withdraw(o)
	left, err := c.Permit(waiting)
	if err != nil {
		return nil, err
	}
	ctx, cancelAnswer := context.WithTimeout(ctx, left)
	defer cancelAnswer()
	return s.exchange(ctx, o)
}

// place tries the device's next socket if the newest ends first.
func (g *Gateway) place(ctx context.Context, c Command) (*session, *pendingCommand, error) {
	for {
		o, err := newPendingCommand(c)
		if err != nil {
			return nil, nil, err
		}
		s := g.newestSocket(c.IMEI)
		if s == nil {
			return nil, nil, fmt.Errorf("%w: no socket of the device is here", ErrNotConnected)
		}
		if !s.addCommand(o) {
			return nil, nil, fmt.Errorf("%w: another command is under way on the socket", ErrNotConnected)
		}
		ended, err := s.awaitTurn(ctx, o)
		if err == nil && !ended {
			return s, o, nil
		}
		s.withdraw(o)
		if err != nil {
			return nil, nil, err
		}
	}
}

// Ready reports whether a device has a socket here that takes commands.
func (g *Gateway) Ready(imei string) bool {
	s := g.newestSocket(imei)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.accepted && !s.ended
}

func newPendingCommand(c Command) (*pendingCommand, error) {
	imei, err := teltonika.ParseIMEI(c.IMEI)
	if err != nil {
		return nil, fmt.Errorf("gateway: command: %w", err)
	}
	m := teltonika.Message{Type: teltonika.TypeCommand, IMEI: imei, Text: c.Text}
	return &pendingCommand{
		codec: c.Codec, imei: imei, frame: teltonika.AppendMessages(nil, c.Codec, m),
		ready: make(chan struct{}), done: make(chan struct{}), heard: make(chan struct{}),
	}, nil
}

// addCommand returns false if another command is pending. If the session has ended, it closes
// o.done.
func (s *session) addCommand(o *pendingCommand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		close(o.done)
		return true
	case s.commands.pending != nil:
		return false
	}
	s.commands.pending = o
	if s.commands.accepted {
		close(o.ready)
	}
	return true
}

func (s *session) acceptCommands() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.commands.pending; o != nil && !s.commands.accepted {
		close(o.ready)
	}
	s.commands.accepted = true
}

func (s *session) awaitTurn(ctx context.Context, o *pendingCommand) (ended bool, err error) {
	select { // ignores ctx: Redis' clock decides whether time is left
	case <-o.ready:
	default:
		if ended, err := until(ctx, o, o.ready); ended || err != nil {
			return ended, err
		}
	}
	if left := s.unquiet(); left > 0 {
		return until(ctx, o, time.After(left))
	}
	return false, nil
}

// until waits for an event, or for the end of the command or ctx.
func until[T any](ctx context.Context, o *pendingCommand, event <-chan T) (ended bool, err error) {
	select {
	case <-event:
		return false, nil
	case <-o.done:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (s *session) unquiet() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.commands.answered.Add(s.g.cfg.Quiet))
}

func (s *session) withdraw(o *pendingCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands.pending == o {
		s.commands.pending = nil
	}
}

func (s *session) exchange(ctx context.Context, o *pendingCommand) ([]byte, error) {
	s.permit(o)
	why := "the socket ended"
	select {
	case <-o.heard:
		_, _ = until(ctx, o, time.After(s.g.cfg.Quiet)) // for all that may be the answer
	case <-o.done:
	case <-ctx.Done():
		why = "its time was up"
	}
	s.withdraw(o) // it can no longer get an answer
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o.refused != nil:
		return nil, o.refused
	case o.answered && o.unsure:
		return o.text, ErrAmbiguous
	case o.answered:
		return o.text, nil
	case !o.written:
		return nil, fmt.Errorf("%w: %s before it could be sent", ErrNotConnected, why)
	case o.failed != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, o.failed)
	}
	s.commands.unsure |= bitOf(o.codec) // the answer may still come
	return nil, fmt.Errorf("%w: %s; the device may have executed it", ErrUnanswered, why)
}

func (s *session) permit(o *pendingCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.permitted = true
	if s.resting {
		s.called = true
		s.interrupt()
	}
}

// takeCommand returns the pending command if it must be written now. The caller holds mu.
func (s *session) takeCommand() *pendingCommand {
	o := s.commands.pending
	if o == nil || !o.permitted || o.written {
		return nil
	}
	if bytes, end := s.unread(); bytes || end {
		return nil
	}
	o.written, s.commands.written = true, true
	o.unsure = (s.commands.unsure|s.g.store.notes.talks(s.imei))&bitOf(o.codec) != 0
	return o
}

// After an error of write the socket must end: half a command makes everything after it unreadable.
func (s *session) write(o *pendingCommand) error {
	n, err := s.send(o.frame)
	if err != nil && n == 0 {
		s.mu.Lock()
		o.failed = err
		s.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("gateway: command: %v", err) // hides the socket's error, as answer does
	}
	return nil
}

// takeAnswer passes a message to the pending command if it is the answer, or may be: then it is
// ambiguous. Only type 06 can be an answer; in codec 14 it names its device. Before any command it
// is the device's own data.
func (s *session) takeAnswer(codec teltonika.Codec, m teltonika.Message) (asked, ambiguous bool) {
	nack := m.Type == teltonika.TypeNACK && codec == teltonika.Codec14
	if codec != teltonika.Codec12 && codec != teltonika.Codec14 || m.Type != teltonika.TypeResponse && !nack {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.commands.pending
	if o == nil || !o.written || o.codec != codec {
		s.commands.unsure |= bitOf(codec)
		s.g.metrics.stray.Inc()
		if !s.commands.written {
			s.g.store.notes.change(s.imei, func(n *note) { n.talks |= bitOf(codec) })
		}
		return false, false
	}
	text := bytes.Clone(m.Text) // m is a view
	var refused error
	if nack || codec == teltonika.Codec14 && m.IMEI != o.imei {
		refused = fmt.Errorf("%w: the device says that it is %s", ErrWrongDevice, m.IMEI)
	}
	if o.unsure {
		if refused != nil {
			text = fmt.Appendf(nil, "[not executed: the device says that it is %s]", m.IMEI)
		}
		o.hear(text)
		if !o.answered {
			o.answered, s.commands.answered = true, time.Now()
			close(o.heard)
		}
		return true, true
	}
	o.text, o.refused = text, refused
	o.answered = true
	s.commands.answered = time.Now() // before the next command can be sent
	s.commands.pending = nil
	close(o.done)
	return true, false
}

func (o *pendingCommand) hear(text []byte) {
	text = bytes.TrimRight(text, "\r\n")
	if len(o.text)+len(text) >= candidates {
		return
	}
	if o.answered {
		o.text = append(o.text, '\n')
	}
	o.text = append(o.text, text...)
}
