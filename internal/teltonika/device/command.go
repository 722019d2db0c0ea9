package device

import (
	"context"
	"fmt"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Command is a command as a device received it.
type Command struct {
	Codec teltonika.Codec
	IMEI  string // codec 14: the device that it is for; else empty
	Text  string
}

// Received is what a server sent to a device: the answer to a frame of records, or a frame of
// commands.
type Received struct {
	// Acked is the number in the answer; 0 with commands.
	Acked int
	// Commands are the messages of type 5 in a frame of codec 12 or 14.
	Commands []Command
}

// Receive waits until the server sends something, or until ctx ends. It has no timeout of its own,
// because a server may have nothing to send for an hour. If ctx ends in the middle of a frame,
// nothing is lost: the next call goes on there. Messages that are no commands are skipped.
//
// An answer and a frame begin with four bytes each. Those of a frame are zero. So an answer of zero
// records, which is due only to a frame without records, is taken for the beginning of a frame.
//
// Errors are [ErrNotConnected], io.EOF when the server has closed, the cause of ctx, those of
// [teltonika.Reader.Next] and [teltonika.DecodeMessages] for a bad frame, and the network's.
func (d *Device) Receive(ctx context.Context) (Received, error) {
	s := d.socket()
	if s == nil {
		return Received{}, ErrNotConnected
	}
	r, err := s.receive(ctx)
	return r, d.wrap("receive", err)
}

// Executes says what a real device does with a command: it answers with the given text in the
// command's own codec, unless the command names another device, which it refuses.
func (d *Device) Executes(c Command, text string) teltonika.Message {
	m := teltonika.Message{Type: teltonika.TypeResponse, Text: []byte(text)}
	if c.Codec == teltonika.Codec14 {
		m.IMEI, _ = teltonika.ParseIMEI(d.imei) // of a bad one zeros, as its firmware would have them
		if c.IMEI != d.imei {
			m.Type, m.Text = teltonika.TypeNACK, nil
		}
	}
	return m
}

// Answer sends what [Device.Executes] returns, within the device's timeout.
func (d *Device) Answer(ctx context.Context, c Command, text string) error {
	frame, err := teltonika.AppendMessages(nil, c.Codec, d.Executes(c, text))
	if err != nil {
		return d.wrap("answer", err)
	}
	return d.SendRaw(ctx, frame)
}

// Say sends the server a frame with one message.
type Say func(teltonika.Codec, teltonika.Message) error

// Obey reads commands from the present socket and sends what answer returns for each, in the
// command's codec; none: the device stays silent. It returns nil when ctx ends, and otherwise why
// the socket could not be read or written any more. Meanwhile nobody else may use that socket, but
// it may be closed, and left by [Device.Connect].
func (d *Device) Obey(ctx context.Context, answer func(Command) []teltonika.Message) error {
	return d.Follow(ctx, func(c Command, say Say) error {
		for _, m := range answer(c) {
			if err := say(c.Codec, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Follow is Obey for a device that sends any number of frames at any time: it calls follow for each
// command, and reads no other command before follow returns. An error of follow ends Follow.
func (d *Device) Follow(ctx context.Context, follow func(Command, Say) error) error {
	s := d.socket()
	if s == nil {
		return ErrNotConnected
	}
	say := func(codec teltonika.Codec, m teltonika.Message) error {
		frame, err := teltonika.AppendMessages(nil, codec, m)
		if err != nil {
			return err
		}
		return s.exchange(ctx, frame, nil)
	}
	for {
		r, err := s.receive(ctx)
		for _, c := range r.Commands {
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
