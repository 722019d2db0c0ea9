package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// ErrNotConnected means that the device has no socket.
var ErrNotConnected = errors.New("device: not connected")

// Device is one tracker. One goroutine at a time may use its present socket; others may call the
// closing methods.
type Device struct {
	imei    string
	timeout time.Duration
	track   *Track

	use sync.Mutex // held by Move, Report and Leave

	mu      sync.Mutex
	present *socket
	stale   []*socket // forgotten, still open
}

// New accepts any IMEI, since a test may want a bad one. timeout bounds every exchange; 0 means 30
// s, as for real devices.
func New(imei string, timeout time.Duration) *Device {
	return &Device{imei: imei, timeout: cmp.Or(timeout, 30*time.Second), track: NewTrack(0)}
}

// IMEI returns the IMEI for the handshake.
func (d *Device) IMEI() string { return d.imei }

// At returns the address to which the present socket leads, or "".
func (d *Device) At() string {
	if s := d.socket(); s != nil {
		return s.addr
	}
	return ""
}

// Connect shakes hands on a new socket. If the server refuses, it returns false without an error.
// Otherwise that becomes the present one, and the former stays open as stale.
func (d *Device) Connect(ctx context.Context, addr string) (accepted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false, d.wrap("connect", err)
	}
	s := newSocket(conn, addr)
	hello := append([]byte{byte(len(d.imei) >> 8), byte(len(d.imei))}, d.imei...)
	answer := make([]byte, 1)
	if err := s.exchange(ctx, hello, answer); err != nil || answer[0] != teltonika.Accept {
		_ = s.Close() // err or the answer has the reason
		return false, d.wrap("handshake", err)
	}
	d.HalfOpen()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.present = s
	return true, nil
}

// Send returns the number of records that the server acknowledged. After an error the server may
// have stored them all the same.
func (d *Device) Send(
	ctx context.Context, codec teltonika.Codec, records ...teltonika.Record,
) (acked int, err error) {
	answer := make([]byte, answerSize)
	err = d.exchange(ctx, teltonika.AppendFrame(nil, codec, records...), answer)
	return int(binary.BigEndian.Uint32(answer)), d.wrap("send", err)
}

// SendRaw sends bytes and does not wait for an answer.
func (d *Device) SendRaw(ctx context.Context, raw []byte) error {
	return d.wrap("send", d.exchange(ctx, raw, nil))
}

func (d *Device) exchange(ctx context.Context, out, in []byte) error {
	s := d.socket()
	if s == nil {
		return ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return s.exchange(ctx, out, in)
}

func (d *Device) socket() *socket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.present
}

func (d *Device) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("device %s: %s: %w", d.imei, what, err)
}

// HalfOpen forgets the present socket without closing it.
func (d *Device) HalfOpen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.present != nil {
		d.stale = append(d.stale, d.present)
		d.present = nil
	}
}

// DropStale closes the forgotten sockets: the late close that must not undo a newer claim.
func (d *Device) DropStale() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.stale {
		_ = s.Close() // nothing is unsent
	}
	d.stale = nil
}

// Close closes every socket. The device can connect again.
func (d *Device) Close() {
	d.HalfOpen()
	d.DropStale()
}

// Command is a command as a device received it.
type Command struct {
	Codec teltonika.Codec
	IMEI  string // codec 14: the addressed device
	Text  string
}

// Receive waits for data until ctx ends: the number of records in an answer, or the messages of
// type 5 in a frame of codec 12 or 14. The next call continues in the middle of a frame. Other
// messages are skipped.
//
// A frame begins with four zero bytes, so an answer of zero records is taken for the beginning of a
// frame.
//
// Errors are [ErrNotConnected], io.EOF after the server has closed, the cause of ctx, those of
// [teltonika.Reader.Next] and [teltonika.DecodeMessages], and the network's.
func (d *Device) Receive(ctx context.Context) (acked int, commands []Command, err error) {
	s := d.socket()
	if s == nil {
		return 0, nil, ErrNotConnected
	}
	acked, commands, err = s.receive(ctx)
	return acked, commands, d.wrap("receive", err)
}

// Executes returns a real device's reaction to a command: an answer in its codec, or a refusal if
// it names another device.
func (d *Device) Executes(c Command, text string) teltonika.Message {
	m := teltonika.Message{Type: teltonika.TypeResponse, Text: []byte(text)}
	if c.Codec == teltonika.Codec14 {
		m.IMEI, _ = teltonika.ParseIMEI(d.imei) // zeros for a bad one, as in its firmware
		if c.IMEI != d.imei {
			m.Type, m.Text = teltonika.TypeNACK, nil
		}
	}
	return m
}

// Say answers a command: it sends the server a frame with one message.
type Say func(teltonika.Codec, teltonika.Message) error

// Follow calls follow for each command from the present socket in turn. It returns nil when ctx
// ends, or else the error of follow, or the one that broke the socket, which nobody else may use
// meanwhile, except to close it or leave it by [Device.Connect].
func (d *Device) Follow(ctx context.Context, follow func(Command, Say) error) error {
	s := d.socket()
	if s == nil {
		return ErrNotConnected
	}
	say := func(codec teltonika.Codec, m teltonika.Message) error { return s.say(ctx, codec, m) }
	for {
		_, commands, err := s.receive(ctx)
		for _, c := range commands {
			if err == nil {
				err = follow(c, say)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("device %s: %w", d.imei, err)
		}
	}
}

const (
	answerSize = 4                               // number of records
	headerSize = 8                               // preamble and length
	mostBody   = 2<<10 - headerSize - answerSize // of commands
)

// socket keeps what has arrived of an answer or frame.
type socket struct {
	net.Conn
	in   *bufio.Reader
	addr string
}

func newSocket(conn net.Conn, addr string) *socket {
	return &socket{conn, bufio.NewReaderSize(conn, 2<<10), addr}
}

func (s *socket) say(ctx context.Context, codec teltonika.Codec, m teltonika.Message) error {
	return s.exchange(ctx, teltonika.AppendMessages(nil, codec, m), nil)
}

func (s *socket) exchange(ctx context.Context, out, in []byte) error {
	return s.interruptible(ctx, func() error {
		if _, err := s.Write(out); err != nil {
			return err
		}
		_, err := io.ReadFull(s.in, in)
		return err
	})
}

func (s *socket) interruptible(ctx context.Context, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// A deadline in the past wakes a blocked read or write; a context alone cannot.
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = s.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket, which is awake already
	})
	err := do()
	if !stop() {
		<-done // so that this deadline cannot hit the next exchange
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func (s *socket) receive(ctx context.Context) (acked int, commands []Command, err error) {
	err = s.interruptible(ctx, func() error {
		for acked == 0 && len(commands) == 0 && err == nil {
			acked, commands, err = s.next()
		}
		return err
	})
	return acked, commands, err
}

func (s *socket) next() (acked int, commands []Command, err error) {
	raw, err := s.have(answerSize)
	if err != nil {
		return 0, nil, err
	}
	if n := binary.BigEndian.Uint32(raw); n != 0 {
		_, err := s.in.Discard(answerSize)
		return int(n), nil, err
	}
	if raw, err = s.have(headerSize); err != nil {
		return 0, nil, err
	}
	if length := binary.BigEndian.Uint32(raw[answerSize:]); length <= mostBody {
		if raw, err = s.have(headerSize + int(length) + answerSize); err != nil {
			return 0, nil, err
		}
	}
	frame, err := teltonika.NewReader(bytes.NewReader(raw), mostBody).Next()
	if err != nil {
		return 0, nil, err
	}
	messages, err := teltonika.DecodeMessages(frame.Body)
	if err != nil {
		return 0, nil, err
	}
	for m := range messages.All() {
		c := Command{Codec: messages.Codec, Text: string(m.Text)}
		if c.Codec == teltonika.Codec14 {
			c.IMEI = m.IMEI.String()
		}
		if m.Type == teltonika.TypeCommand && (c.IMEI != "" || c.Codec == teltonika.Codec12) {
			commands = append(commands, c)
		}
	}
	_, err = s.in.Discard(len(raw))
	return 0, commands, err
}

func (s *socket) have(n int) ([]byte, error) {
	p, err := s.in.Peek(n)
	if errors.Is(err, io.EOF) && len(p) > 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return p, err
}
