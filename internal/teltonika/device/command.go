package device

import (
	"context"
	"fmt"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Command is a command as a device received it.
type Command struct {
	Codec teltonika.Codec
	IMEI  string // codec 14: the addressed device
	Text  string
}

// Received is data from a server: the answer to a frame of records, or a frame of commands.
type Received struct {
	// Acked is 0 with commands.
	Acked int
	// Commands holds the messages of type 5 in a frame of codec 12 or 14.
	Commands []Command
}

// Receive waits for data until ctx ends: a server may have nothing to send for an hour. The next
// call continues in the middle of a frame. Messages other than commands are skipped.
//
// A frame begins with four zero bytes, so an answer of zero records is taken for the beginning of a
// frame.
//
// Errors are [ErrNotConnected], io.EOF after the server has closed, the cause of ctx, those of
// [teltonika.Reader.Next] and [teltonika.DecodeMessages], and the network's.
func (d *Device) Receive(ctx context.Context) (Received, error) {
	s := d.socket()
	if s == nil {
		return Received{}, ErrNotConnected
	}
	r, err := s.receive(ctx)
	return r, d.wrap("receive", err)
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

// Answer sends the result of [Device.Executes], within the device's timeout.
func (d *Device) Answer(ctx context.Context, c Command, text string) error {
	frame, err := teltonika.AppendMessages(nil, c.Codec, d.Executes(c, text))
	if err != nil {
		return d.wrap("answer", err)
	}
	return d.SendRaw(ctx, frame)
}

// Say sends the server a frame with one message.
type Say func(teltonika.Codec, teltonika.Message) error

// Obey reads commands from the present socket and sends answer's messages for each, in the
// command's codec. It returns nil when ctx ends, or else the error that broke the socket, which
// nobody else may use meanwhile, except to close it or leave it by [Device.Connect].
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

// Follow is Obey for a device that sends any number of frames at any time: follow is called for
// each command in turn. An error of follow ends Follow.
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
