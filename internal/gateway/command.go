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
)

// errDoubtful is why a socket is closed instead of used.
var errDoubtful = errors.New("an earlier command on the socket went unanswered, or an answer came " +
	"that no command waited for, and what comes next could pass for this one's answer")

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
	doubtful uint8           // bits: see bitOf; only a new socket begins without them
}

// bitOf is the bit of a codec in doubtful: a response of it may come, or came, that does not answer
// the pending command.
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
	failed    error // why nothing of it went out although the session began
	answered  bool
	text      []byte // of the answer
	refused   error  // the answer is that the device is another one
}

// Command sends a command to the newest socket of its device here and returns the text of the
// answer's first frame. It waits until a frame of that socket's session has been acknowledged and
// until the socket was quiet for three seconds after an earlier answer. Then it asks for the permit
// and writes the command, but not between a frame of records and its acknowledgement. One command
// at a time is under way on a socket. If an answer on the socket could belong to another command,
// Command closes the socket: see the package comment.
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
	if s.isDoubtful(o.codec) {
		_ = s.under.Close()
		return nil, fmt.Errorf("%w: the socket was closed, the device comes back: %w", ErrNotConnected, errDoubtful)
	}
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
	o := &pendingCommand{codec: c.Codec, ready: make(chan struct{}), done: make(chan struct{})}
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
// enough, or will be closed as doubtful. It returns the cause of the end of ctx.
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
	if left <= 0 || s.isDoubtful(o.codec) {
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

func (s *session) isDoubtful(codec teltonika.Codec) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.doubtful&bitOf(codec) != 0
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
	case <-o.done:
	case <-ctx.Done():
		why = "its time was up"
	}
	s.withdraw(o) // from now on nothing comes of it
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o.answered:
		return o.text, o.refused
	case !o.written:
		return nil, fmt.Errorf("%w: %s before it could be sent", ErrNotConnected, why)
	case o.failed != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, o.failed)
	}
	// The vendor allows one command at a time, whichever codec the next one has.
	s.commands.doubtful = bitOf(teltonika.Codec12) | bitOf(teltonika.Codec14)
	return nil, fmt.Errorf("%w: %s; the device may have executed it", ErrUnanswered, why)
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
	o.written = true
	if s.commands.doubtful&bitOf(o.codec) != 0 { // since Command looked
		o.failed = errDoubtful
		_ = s.under.Close()
		return nil
	}
	return o
}

// write puts a command on the wire. It closes the socket after an error: half a command makes what
// follows unreadable.
func (s *session) write(o *pendingCommand) {
	n, err := s.send(o.frame)
	if err == nil {
		return
	}
	_ = s.under.Close()
	if n > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.failed = err; s.closeReason != "" {
		o.failed = fmt.Errorf("the socket was closed: %s", s.closeReason)
	}
}

// takeResponses gives the responses in a frame of codec 12 to 15 to the pending command. A response
// of codec 12 names no command, so any one is the answer. One of codec 14 names its device. A
// response that no command waits for makes the socket doubtful: it is the rest of an answer, a late
// one, or what the device sends of itself, and more of it may come. What cannot be read is only
// counted, as a frame.
func (s *session) takeResponses(frame teltonika.Frame) {
	messages, err := teltonika.DecodeMessages(frame.Body)
	if err != nil || frame.Codec != teltonika.Codec12 && frame.Codec != teltonika.Codec14 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range messages.All() {
		nack := m.Type == teltonika.TypeNACK && frame.Codec == teltonika.Codec14
		if m.Type != teltonika.TypeResponse && !nack {
			continue
		}
		o := s.commands.pending
		if o == nil || !o.written || o.codec != frame.Codec {
			s.commands.doubtful |= bitOf(frame.Codec)
			s.g.metrics.stray.Inc()
			continue
		}
		if nack || frame.Codec == teltonika.Codec14 && m.IMEI != o.imei {
			o.refused = fmt.Errorf("%w: the device says that it is %s", ErrWrongDevice, m.IMEI)
		} else {
			o.text = bytes.Clone(m.Text) // m is a view
		}
		o.answered = true
		s.commands.answered = time.Now() // before the next command can be sent
		s.commands.pending = nil
		close(o.done)
	}
}
