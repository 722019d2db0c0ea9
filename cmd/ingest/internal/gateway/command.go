package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Errors of [Gateway.Command].
var (
	// ErrNotConnected: nothing was written to the device.
	ErrNotConnected = errors.New("gateway: not connected")
	// ErrUnanswered: the command was written, and its socket ended or its time was up without an
	// answer. The device may have executed it.
	ErrUnanswered = errors.New("gateway: no answer")
	// ErrWrongDevice: the device at the socket says that the command was for another one. It has not
	// executed it.
	ErrWrongDevice = errors.New("gateway: wrong device")
	// ErrAmbiguous comes with an answer that may be something else: data of a serial port, or the
	// rest of another command's answer. The text is all that may be the answer, a line each.
	ErrAmbiguous = errors.New("gateway: ambiguous answer")
)

// quietTime is how long a socket must have been quiet after an answer before the next command is
// written. A device writes the frames of one answer one after the other, and only the network can
// separate them. Three seconds cover a segment that TCP had to send three times, after one second
// and after two more.
const quietTime = 3 * time.Second

// Command is one command for a device.
type Command struct {
	IMEI  string
	Codec teltonika.Codec // 12 or 14
	Text  []byte
	// Expires is until when the device's session may begin to write it, by this process' clock.
	Expires time.Time
	// Permit is asked once, when the command can be written. It returns how long an answer may take.
	// If it returns an error, nothing is written. Its context ends with Expires.
	Permit func(context.Context) (time.Duration, error)
}

// commandState is what a session knows of commands. The session's mu guards it.
type commandState struct {
	pending  *pendingCommand // the command under way; nil: none
	accepted bool            // a frame was acknowledged: the device takes commands from now on
	answered time.Time       // when the device last answered a command
	written  bool            // a command was written
	unsure   uint8           // bits: see bitOf; only a new socket begins without them
}

// bitOf is the bit of a codec in unsure: a response of it may come that does not answer the pending
// command, since one came that no command waited for, or a command had no answer.
func bitOf(codec teltonika.Codec) uint8 {
	if codec == teltonika.Codec14 {
		return 2
	}
	return 1
}

// pendingCommand is one command on its way through a session. A session has one or none.
type pendingCommand struct {
	codec teltonika.Codec
	imei  teltonika.IMEI
	frame []byte
	ready chan struct{} // closed when the session takes commands
	done  chan struct{} // closed when the device has answered or the socket has ended

	// The session's mu guards these.
	permitted bool  // to be written at the next frame boundary at which nothing is unread
	written   bool  // the session has begun to write it
	unsure    bool  // what comes may be something else than the answer
	failed    error // why nothing of it went out although the session began
	answered  bool
	text      []byte // of the answer; if unsure, of what may be the answer, a line each
	refused   error  // the answer is that the device is another one

	heard chan struct{} // closed when unsure, and the first response came
}

// candidates is how many bytes of what may be the answer are taken. All of it is stored as
// messages.
const candidates = 8 << 10

// Command sends a command to the newest socket of its device here and returns the text of the
// answer's first frame. It waits until a frame of that socket's session has been acknowledged and
// until the socket was quiet for three seconds after an earlier answer. Then it asks for the permit
// and writes the command, but not between a frame of records and its acknowledgement. One command
// at a time is under way on a socket. If a response on the socket could be something else than the
// answer, Command returns all that come within three seconds, with ErrAmbiguous: see the package
// comment.
//
// Nothing was written if the error is ErrNotConnected or what Permit returned. The same holds for
// the cause of the end of ctx and for context.DeadlineExceeded, before Permit was asked. The other
// errors are ErrUnanswered, also when ctx ends later, and ErrWrongDevice.
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

// place gives a command to the newest socket of its device, and waits until it may be written
// there. If the socket ends first, place tries the next one.
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

func newPendingCommand(c Command) (*pendingCommand, error) {
	o := &pendingCommand{
		codec: c.Codec, ready: make(chan struct{}), done: make(chan struct{}), heard: make(chan struct{}),
	}
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

// addCommand makes o the pending command, if there is none. On a session that has ended, o is done.
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

// acceptCommands is called after each acknowledgement.
func (s *session) acceptCommands() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.commands.pending; o != nil && !s.commands.accepted {
		close(o.ready)
	}
	s.commands.accepted = true
}

// awaitTurn waits until a command may be written: the session takes commands and was quiet for long
// enough. It returns the cause of the end of ctx.
func (s *session) awaitTurn(ctx context.Context, o *pendingCommand) (ended bool, err error) {
	select { // without a look at ctx: Redis' clock decides whether there is time left
	case <-o.ready:
	default:
		select {
		case <-o.ready:
		case <-o.done:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	left := s.unquiet()
	if left <= 0 {
		return false, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-o.done:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// unquiet is how long the socket must still be quiet before another command is written.
func (s *session) unquiet() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.commands.answered.Add(s.g.cfg.Quiet))
}

// withdraw takes a command off the session.
func (s *session) withdraw(o *pendingCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands.pending == o {
		s.commands.pending = nil
	}
}

// exchange lets the session write a command, and waits for the answer until ctx ends.
func (s *session) exchange(ctx context.Context, o *pendingCommand) ([]byte, error) {
	s.permit(o)
	why := "the socket ended"
	select {
	case <-o.heard:
		s.listen(ctx, o)
	case <-o.done:
	case <-ctx.Done():
		why = "its time was up"
	}
	s.withdraw(o) // from now on nothing comes of it
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
	s.commands.unsure |= bitOf(o.codec) // the answer may yet come
	return nil, fmt.Errorf("%w: %s; the device may have executed it", ErrUnanswered, why)
}

// listen collects what may be the answer for as long as a socket is quiet between two commands.
func (s *session) listen(ctx context.Context, o *pendingCommand) {
	timer := time.NewTimer(s.g.cfg.Quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.done:
	case <-ctx.Done():
	}
}

// permit lets the session write a command, and wakes it if it waits for its device.
func (s *session) permit(o *pendingCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.permitted = true
	if s.resting {
		s.called = true
		s.interrupt()
	}
}

// takeCommand returns the pending command if the session's goroutine must write it now. What has
// arrived by now is read first: it does not answer the command. mu is held.
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

// write puts a command on the wire. After an error the socket must end: half a command makes what
// follows unreadable for the device.
func (s *session) write(o *pendingCommand) error {
	n, err := s.send(o.frame)
	if err != nil && n == 0 {
		s.mu.Lock()
		o.failed = err
		s.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("gateway: command: %v", err) // as answer hides it
	}
	return nil
}

// takeAnswer gives a message to the pending command if it is the answer, or may be: then it is
// ambiguous. A response of codec 12 names no command, so the first one is the answer. One of codec
// 14 names its device. Only type 06 can be an answer. A response that no command waits for
// makes the socket unsure: it is the rest of an answer, a late one, or what the device sends of
// itself, and more of it may come. If no command was written, it is the last of these, and the
// device will do so on its next socket too.
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

// hear takes what may be the answer.
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
